// Who is connected to a host: processes, and the groups that forked processes form. A group's
// token admits its children; its 128 bits are as hard to guess as the host's seed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "emulator/base/ids.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/host/faults/programs.h"
#include "emulator/host/host.h"
#include "emulator/verbs/ring.h"

namespace rdmaemu {

using GroupToken = std::array<uint8_t, 16>;  // all zero: none

struct ConnectedProcess {
  ProcessInfo info;
  GroupId group = GroupId::kNone;  // until its Hello
};

class Processes final : public Programs {
 public:
  static constexpr size_t kMaxGroups = 16384;

  ProcessId Attach(const ProcessInfo& info);
  // Takes the process out; answers its group when that was the group's last process.
  std::optional<GroupId> Detach(ProcessId process);
  // Puts the process into the token's group, or into a new one when the token is zero. EACCES for
  // a token of no group, EALREADY for a second Hello, ENOMEM when there are too many groups.
  Result<GroupId> Join(ProcessId process, const GroupToken& token, Random& random);

  const ConnectedProcess* Find(ProcessId process) const;
  ConnectedProcess* Find(ProcessId process);
  const std::map<ProcessId, ConnectedProcess>& all() const { return processes_; }

  struct Group {
    GroupToken token;
    size_t processes = 0;
    DoorbellPage* doorbells = nullptr;  // set with the group's first Hello
    std::string program = {};           // of the process that began it
  };
  std::string_view ProgramOf(GroupId group) const override;
  std::string_view ProgramOf(ProcessId process) const override;
  // In the order they came.
  std::map<GroupId, Group>& groups() { return groups_; }
  const std::map<GroupId, Group>& groups() const { return groups_; }

 private:
  std::map<ProcessId, ConnectedProcess> processes_;
  std::map<GroupId, Group> groups_;
  uint32_t last_process_ = 0;
  uint32_t last_group_ = 0;
};

}  // namespace rdmaemu
