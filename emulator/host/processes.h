// Who is connected to a host: processes, and the groups that forked processes form. A group's
// token admits its children; its 128 bits are as hard to guess as the host's seed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "emulator/abi/ring.h"
#include "emulator/base/ids.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/survivors.h"
#include "emulator/host/faults/programs.h"
#include "emulator/host/host.h"

namespace rdmaemu {

using GroupToken = std::array<uint8_t, 16>;  // all zero: none

// What a process's Hello says of where it comes from.
struct Origin {
  GroupToken token{};  // zero: it begins a group, and the rest is not looked at
  ProcessId parent = ProcessId::kNone;
  uint32_t fork = 0;  // the how many-th of its parent, from 1
};

struct ConnectedProcess {
  ProcessInfo info;
  GroupId group = GroupId::kNone;  // until its Hello
  ProcessPage* page = nullptr;     // set with its Hello
  // False: the process has ended. A child that it forked, and that has not said Hello, keeps the
  // connection open.
  bool runs = true;

  uint32_t forks() const {
    return page == nullptr ? 0 : std::atomic_ref(page->forks).load(std::memory_order_acquire);
  }
};

class Processes final : public Programs {
 public:
  static constexpr size_t kMaxGroups = 16384;

  ProcessId Attach(const ProcessInfo& info);
  // The process has ended; its connection is open still.
  void End(ProcessId process);
  // Takes the process out; answers its group when that was the group's last process.
  std::optional<GroupId> Detach(ProcessId process);
  // Puts the process into the token's group, or into a new one when the token is zero. EACCES for
  // a token of no group or a parent of another, EALREADY for a second Hello, ENOMEM when there are
  // too many groups.
  Result<GroupId> Join(ProcessId process, const Origin& origin, Random& random);
  // To whom of the group objects belong now.
  Survivors SurvivorsOf(GroupId group) const;

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
  // Where a process of a group comes from. It stays as long as a process is connected that was
  // forked from it.
  struct Descent {
    ProcessId parent;  // kNone: it began the group
    uint32_t fork;
    size_t children = 0;  // that have a Descent
    bool connected = true;
  };
  void Forget(ProcessId process);

  std::map<ProcessId, ConnectedProcess> processes_;
  std::map<ProcessId, Descent> descents_;
  std::map<GroupId, Group> groups_;
  uint32_t last_process_ = 0;
  uint32_t last_group_ = 0;
};

}  // namespace rdmaemu
