// The door of calls. Rules make calls fail, or delay their replies, before or after the calls take
// effect. The host does other work meanwhile.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "emulator/host/calls/reply.h"
#include "emulator/host/faults/asked_calls.h"
#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/programs.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class CallFaults {
 public:
  // Limit of the delayed and held calls. Further calls get their replies at once.
  static constexpr size_t kMaxDelayed = 4096;

  // Executes a call, including its header, of a connected process.
  using Caller = std::function<Reply(Time, ProcessId, std::span<const std::byte>)>;
  CallFaults(HostFaults& faults, Verbs& verbs, const Programs& programs, Caller call)
      : faults_(faults),
        verbs_(verbs),
        programs_(programs),
        call_(std::move(call)),
        deferred_(kMaxDelayed, faults.counters().delayed_calls_full) {}

  // Executes, fails or delays the call, as the rules decide.
  Reply Call(Time now, ProcessId process, uint32_t caller, GroupId group, uint32_t op,
             std::span<const std::byte> message);
  // Delays the call independently of the rules.
  Reply Postpone(Time now, const fault::Delay& delay, ProcessId process, uint32_t caller,
                 std::span<const std::byte> message);
  // Drops the process's pending calls.
  void Forget(ProcessId process);
  struct Late {
    LateReply reply;
    uint32_t op;  // 0: the reply was sent before, and this reply only ends the program's wait
  };
  std::optional<Late> TakeLate();

  void Expire(Time now);
  auto& deferred() { return deferred_; }
  const auto& deferred() const { return deferred_; }

 private:
  struct Delayed {
    ProcessId process;
    uint32_t caller;
    uint32_t op;
    std::vector<std::byte> message;  // the call to execute; empty: it was executed already
    Reply reply;
    uint32_t asked = 0;  // number of a call that the program has executed itself
  };

  bool HasRoom();
  Delayed Take(Time now, bool takes_effect, ProcessId process, uint32_t caller,
               std::span<const std::byte> message);
  // Returns the immediate reply to a call that is now pending.
  static Reply AnswerNow(const Delayed& waiting);

  HostFaults& faults_;
  Verbs& verbs_;
  const Programs& programs_;
  Caller call_;
  AskedCalls asked_;
  Deferred<Delayed> deferred_;
  std::deque<Late> ready_;
};

}  // namespace rdmaemu
