// How processes join a group of the host (kHello), and the memory that they share with the host.
#pragma once

#include <map>
#include <span>

#include "emulator/base/random.h"
#include "emulator/host/calls/reply.h"
#include "emulator/host/host.h"
#include "emulator/host/processes.h"
#include "emulator/host/turns.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class Joining {
 public:
  // Keeps references.
  Joining(const HostConfig& config, Verbs& verbs, Processes& processes, const HostTurns& turns,
          Random& random)
      : config_(config), verbs_(verbs), processes_(processes), turns_(turns), random_(random) {}

  // `body` (hostile) is that of kHello. After success the process has a group. Its parent may have
  // ended, so the caller then ends orphans.
  Reply Hello(ProcessId process, std::span<const std::byte> body);
  // `body` (hostile) is that of kMapSegment.
  Reply MapSegment(GroupId group, std::span<const std::byte> body);
  // Frees what the process got with its Hello. Call this when the process has detached.
  void FreePage(GroupId group, ProcessId process);

 private:
  // Gives the process its page, and the group's doorbells. Returns their place, or an errno.
  Result<SharedSpan> Share(GroupId group, ProcessId process);

  const HostConfig& config_;
  Verbs& verbs_;
  Processes& processes_;
  const HostTurns& turns_;
  Random& random_;
  std::map<ProcessId, Span> pages_;
};

}  // namespace rdmaemu
