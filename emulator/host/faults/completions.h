// The door of completions: they say something else, come later, more than once or never.
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
  // Delayed and held completions. One more is delivered at once, and with it those that wait before
  // it on its queue.
  static constexpr size_t kMaxDelayed = 65536;

  CompletionFaults(HostFaults& faults, Verbs& verbs, const Programs& programs)
      : faults_(faults),
        verbs_(verbs),
        programs_(programs),
        deferred_(kMaxDelayed, faults.counters().delayed_completions_full) {}

  // As transport::Doors.
  bool Complete(Time now, transport::PassingCompletion completion);
  // The QP has gone to ERR.
  void Failed(Handle qp) { failing_.erase(qp); }

  // Drops what waits of destroyed queue pairs: a later one may have the same handle.
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

  // Pushes it, or puts it behind what waits on its line, or has it wait: for `delay`, or for the
  // release of the rule `barrier`. False: the queue overran.
  bool Deliver(Time now, const transport::PassingCompletion& completion, Duration delay,
               std::string_view barrier = {});
  void Change(const fault::ChangeCompletion& change, transport::PassingCompletion& completion);
  void Push(const Delayed& due);

  HostFaults& faults_;
  Verbs& verbs_;
  const Programs& programs_;
  Deferred<Delayed, Line> deferred_;
  std::set<Handle> failing_;  // QPs that reported an error and are about to move to ERR
};

}  // namespace rdmaemu
