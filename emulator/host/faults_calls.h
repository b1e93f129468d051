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
#include "emulator/host/faults_asked.h"
#include "emulator/host/host.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class CallFaults {
 public:
  // Calls that wait, for their time or for somebody who lets go; more are answered at once.
  static constexpr size_t kMaxDelayed = 4096;

  // Does a call, header included, of a process that is there.
  using Caller = std::function<Reply(Time, ProcessId, std::span<const std::byte>)>;
  CallFaults(HostFaults& faults, Verbs& verbs, Caller call)
      : faults_(faults), verbs_(verbs), call_(std::move(call)) {}

  // Does the call as the rules say.
  Reply Call(Time now, ProcessId process, const ConnectedProcess& caller, uint32_t op,
             std::span<const std::byte> message);
  // Has the caller wait, whatever the rules say.
  Reply Postpone(Time now, const fault::Delay& delay, ProcessId process,
                 std::span<const std::byte> message);
  // Nobody waits for the process's calls any more.
  void Forget(ProcessId process);
  // What barriers hold is done, in its order, with the next look at what is due.
  void LetGo(Time now, const fault::Release& release);
  const auto& held() const { return held_; }
  struct Late {
    LateReply reply;
    uint32_t op;  // 0: the call has been answered before, and its program only came back to wait
  };
  std::optional<Late> TakeLate();

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

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
  Caller call_;
  AskedCalls asked_;
  std::multimap<Time, Delayed> delayed_;
  fault::Held<Delayed> held_;
  std::deque<Late> ready_;
};

}  // namespace rdmaemu
