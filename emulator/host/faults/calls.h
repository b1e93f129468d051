// The door of calls: they fail, or are answered later, before or after they have taken effect. The
// host goes on meanwhile.
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
  // Delayed and held calls; more are answered at once.
  static constexpr size_t kMaxDelayed = 4096;

  // Does a call, header included, of a process that is there.
  using Caller = std::function<Reply(Time, ProcessId, std::span<const std::byte>)>;
  CallFaults(HostFaults& faults, Verbs& verbs, const Programs& programs, Caller call)
      : faults_(faults),
        verbs_(verbs),
        programs_(programs),
        call_(std::move(call)),
        deferred_(kMaxDelayed, faults.counters().delayed_calls_full) {}

  // Does the call as the rules say.
  Reply Call(Time now, ProcessId process, GroupId group, uint32_t op,
             std::span<const std::byte> message);
  // Has the caller wait, whatever the rules say.
  Reply Postpone(Time now, const fault::Delay& delay, ProcessId process,
                 std::span<const std::byte> message);
  // Drops what waits of the process.
  void Forget(ProcessId process);
  struct Late {
    LateReply reply;
    uint32_t op;  // 0: the call has been answered before, and its program only came back to wait
  };
  std::optional<Late> TakeLate();

  void Expire(Time now);
  auto& deferred() { return deferred_; }
  const auto& deferred() const { return deferred_; }

 private:
  struct Delayed {
    ProcessId process;
    uint32_t op;
    std::vector<std::byte> message;  // still to be done; empty: it has been
    Reply reply;
    uint32_t asked = 0;  // number of a call that the program has done itself meanwhile
  };

  bool HasRoom();
  Delayed Take(Time now, bool takes_effect, ProcessId process, std::span<const std::byte> message);
  // What the caller is told of what now waits.
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
