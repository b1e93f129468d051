// The door of calls: they fail, or are answered later, before or after they have taken effect. The
// host goes on meanwhile.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "emulator/host/faults.h"
#include "emulator/host/host.h"

namespace rdmaemu {

class CallFaults {
 public:
  // Calls that wait; more are answered at once.
  static constexpr size_t kMaxDelayed = 4096;

  // Does a call, header included, of a process that is there.
  using Caller = std::function<Reply(Time, ProcessId, std::span<const std::byte>)>;
  CallFaults(HostFaults& faults, Caller call) : faults_(faults), call_(std::move(call)) {}

  // Does the call as the rules say.
  Reply Call(Time now, ProcessId process, std::string_view program, uint32_t op,
             std::span<const std::byte> message);
  // Has the caller wait, whatever the rules say.
  Reply Postpone(Time now, const fault::Delay& delay, ProcessId process,
                 std::span<const std::byte> message);
  // Nobody waits for the process's calls any more.
  void Forget(ProcessId process);
  std::optional<LateReply> TakeLate();

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

 private:
  struct Delayed {
    ProcessId process;
    std::vector<std::byte> message;  // still to be done; empty: it has been
    Reply reply;
  };

  HostFaults& faults_;
  Caller call_;
  std::multimap<Time, Delayed> delayed_;
  std::deque<LateReply> ready_;
};

}  // namespace rdmaemu
