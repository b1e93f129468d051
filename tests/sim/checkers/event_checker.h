// Events of completion queues (ibv_req_notify_cq(3)). An armed queue raises one event with the next
// completion, or with the next solicited or failed one. It raises no other event until it is armed
// again.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class EventChecker {
 public:
  using Queue = uint32_t;

  explicit EventChecker(Verdict& verdict) : verdict_(verdict) {}

  Queue Open(std::string name) {
    queues_.push_back({std::move(name)});
    return static_cast<Queue>(queues_.size() - 1);
  }
  // The program requests the next event. A later request for solicited completions only does not
  // replace one for any completion.
  void Armed(Queue queue, bool solicited_only) {
    State& state = queues_.at(queue);
    if (state.arming != Arming::kAny) {
      state.arming = solicited_only ? Arming::kSolicited : Arming::kAny;
    }
  }
  bool IsArmed(Queue queue) const { return queues_.at(queue).arming != Arming::kNone; }
  // A completion is in the queue. `solicited`: its sender requested an event, or it failed.
  void Completed(Queue queue, bool solicited) {
    State& state = queues_.at(queue);
    if (state.arming == Arming::kAny || (state.arming == Arming::kSolicited && solicited)) {
      state.arming = Arming::kNone;
      state.due++;
    }
  }
  // An event of the queue was taken from its channel.
  void Raised(Queue queue) {
    State& state = queues_.at(queue);
    if (state.due == 0) {
      verdict_.Complain("events", state.name + ": an event that nothing asked for");
    } else {
      state.due--;
    }
  }
  // The program has polled everything that the host has done.
  void Settled() {
    for (const State& state : queues_) {
      if (state.due > 0) verdict_.Complain("events", state.name + ": an event is missing");
    }
  }
  void Close(Queue queue) { queues_.at(queue).due = 0; }

 private:
  enum class Arming : uint8_t { kNone, kSolicited, kAny };
  struct State {
    std::string name;
    Arming arming = Arming::kNone;
    uint32_t due = 0;
  };
  Verdict& verdict_;
  std::deque<State> queues_;
};

}  // namespace rdmaemu::sim
