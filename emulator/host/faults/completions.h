// The door of completions: rules change, delay, duplicate or drop them.
#pragma once

#include <set>
#include <string_view>
#include <utility>

#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/programs.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class CompletionFaults {
 public:
  // Limit of the delayed and held completions. A further completion is delivered at once, after the
  // pending completions before it on its queue.
  static constexpr size_t kMaxDelayed = 65536;

  CompletionFaults(HostFaults& faults, Verbs& verbs, const Programs& programs)
      : faults_(faults),
        verbs_(verbs),
        programs_(programs),
        deferred_(kMaxDelayed, faults.counters().delayed_completions_full) {}

  // Acts as transport::Doors.
  bool Complete(Time now, transport::PassingCompletion completion);
  // Records that the QP is now in ERR.
  void Failed(Handle qp) { failing_.erase(qp); }

  // Drops the pending completions of destroyed queue pairs, because a later QP may have the same
  // handle.
  void ForgetGone();
  void Expire(Time now);
  auto& deferred() { return deferred_; }
  const auto& deferred() const { return deferred_; }

 private:
  // Completions of one queue pair and one kind (send or receive) keep their order.
  using Line = std::pair<Handle, bool>;
  struct Delayed {
    GroupId group;
    Line line;
    CqEntry entry;
    bool solicited;
  };

  // Pushes the completion, queues it behind earlier ones of its line, or defers it. A deferred
  // completion waits for `delay`, or for the release of the rule `barrier`. Returns false when the
  // queue overran.
  bool Deliver(Time now, const transport::PassingCompletion& completion, Duration delay,
               std::string_view barrier = {});
  void Change(const fault::ChangeCompletion& change, transport::PassingCompletion& completion);
  void Push(const Delayed& due);

  HostFaults& faults_;
  Verbs& verbs_;
  const Programs& programs_;
  Deferred<Delayed, Line> deferred_;
  std::set<Handle> failing_;  // QPs that reported an error and will be moved to ERR
};

}  // namespace rdmaemu
