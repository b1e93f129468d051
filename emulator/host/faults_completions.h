// The door of completions: they say something else, come later, more than once or never.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "emulator/host/faults.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class CompletionFaults {
 public:
  // Completions that wait, for their time or for somebody who lets go; more come at once, and what
  // waits before them with them.
  static constexpr size_t kMaxDelayed = 65536;

  CompletionFaults(HostFaults& faults, Verbs& verbs, const Processes& processes)
      : faults_(faults), verbs_(verbs), processes_(processes) {}

  // As transport::Doors.
  bool Complete(Time now, transport::PassingCompletion completion);
  // The QP has gone to ERR.
  void Failed(Handle qp) { failing_.erase(qp); }

  // What barriers hold comes, in its order, with the next look at what is due.
  void LetGo(Time now, const fault::Release& release);
  // What waits of queue pairs that are no more: a later one may have the same handle.
  void ForgetGone();
  bool holds() const { return held_ > 0; }
  // Those that stand behind a barrier's, too, are its.
  void CountHeld(fault::HeldCounts& counts) const;

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

 private:
  // A queue pair's completions of one kind keep their order.
  using Line = std::pair<Handle, bool>;
  struct Delayed {
    GroupId group;
    Line line;
    CqEntry entry;
    bool solicited;
  };
  struct Held {
    std::string rule;  // empty: it stands behind one that a rule holds
    Time until;        // of its own delay
    Delayed what;
  };
  struct Waiting {
    GroupId group;          // of its queue pair
    Time until{};           // of the last that is delayed
    size_t delayed = 0;     // in delayed_
    std::deque<Held> held;  // comes behind those; the first is a rule's
  };

  // `barrier`: the rule that holds it; empty: none.
  bool Deliver(Time now, const transport::PassingCompletion& completion, Duration delay,
               const std::string& barrier = {});
  void Delay(Waiting& waiting, Time until, const Delayed& what);
  bool DeliverAll(const Line& line, const transport::PassingCompletion& last, CompletionQueue& cq);
  void Change(const fault::ChangeCompletion& change, transport::PassingCompletion& completion);
  void Release(const Delayed& due);

  HostFaults& faults_;
  Verbs& verbs_;
  const Processes& processes_;
  std::multimap<Time, Delayed> delayed_;
  std::map<Line, Waiting> lines_;
  size_t held_ = 0;           // of all lines
  std::set<Handle> failing_;  // QPs that have said an error and are about to be in ERR
};

}  // namespace rdmaemu
