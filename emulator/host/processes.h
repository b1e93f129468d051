// The processes that are connected to a host, and the groups of forked processes. A child shows its
// group's token to join the group. The token's 128 bits are as hard to guess as the host's seed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "emulator/abi/process_page.h"
#include "emulator/abi/ring.h"
#include "emulator/base/ids.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/survivors.h"
#include "emulator/host/faults/programs.h"
#include "emulator/host/host.h"

namespace rdmaemu {

using GroupToken = std::array<uint8_t, 16>;  // all zero: none

// The origin of a process, as its Hello states it.
struct Origin {
  GroupToken token{};  // zero: the process begins a group, and the rest is ignored
  ProcessId parent = ProcessId::kNone;
  uint32_t fork = 0;  // number of the parent's fork, from 1
};

struct ConnectedProcess {
  ProcessInfo info;
  GroupId group = GroupId::kNone;  // until its Hello
  ProcessPage* page = nullptr;     // set with its Hello
  // False: the process has ended. A forked child that has not sent a Hello keeps the connection
  // open.
  bool runs = true;

  uint32_t forks() const {
    return page == nullptr ? 0 : std::atomic_ref(page->forks).load(std::memory_order_acquire);
  }
};

class Processes final : public Programs {
 public:
  static constexpr size_t kMaxGroups = 16384;

  ProcessId Attach(const ProcessInfo& info);
  // Handles the end of a process whose connection is still open.
  void End(ProcessId process);
  // Removes the process. Returns its group when it was the group's last process.
  std::optional<GroupId> Detach(ProcessId process);
  // Adds the process to the token's group, or to a new group when the token is zero. EACCES for a
  // token of no group, or a parent of another group. EALREADY for a second Hello. ENOMEM when there
  // are too many groups.
  Result<GroupId> Join(ProcessId process, const Origin& origin, Random& random);
  // Returns which processes of the group own objects now.
  Survivors SurvivorsOf(GroupId group) const;

  const ConnectedProcess* Find(ProcessId process) const;
  ConnectedProcess* Find(ProcessId process);
  const std::map<ProcessId, ConnectedProcess>& all() const { return processes_; }

  struct Group {
    GroupToken token;
    size_t processes = 0;
    DoorbellPage* doorbells = nullptr;  // set with the group's first Hello
    std::string program = {};           // of the process that began the group
  };
  std::string_view ProgramOf(GroupId group) const override;
  std::string_view ProgramOf(ProcessId process) const override;
  // In the order of their creation.
  std::map<GroupId, Group>& groups() { return groups_; }
  const std::map<GroupId, Group>& groups() const { return groups_; }

 private:
  // The origin of a process in a group. The entry remains while a process that was forked from it
  // is connected.
  struct Descent {
    ProcessId parent;  // kNone: the process began the group
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
