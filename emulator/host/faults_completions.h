// The door of completions: they say something else, come later, more than once or never.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "emulator/host/faults.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class CompletionFaults {
 public:
  // Completions that wait; more come at once, and what waits before them with them.
  static constexpr size_t kMaxDelayed = 65536;

  CompletionFaults(HostFaults& faults, Verbs& verbs, const Processes& processes)
      : faults_(faults), verbs_(verbs), processes_(processes) {}

  // As transport::Doors.
  bool Complete(Time now, transport::PassingCompletion completion);
  // The QP has gone to ERR.
  void Failed(Handle qp) { failing_.erase(qp); }

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
  struct Waiting {
    Time until;
    size_t count = 0;
  };

  bool Deliver(Time now, const transport::PassingCompletion& completion, Duration delay);
  void Change(const fault::ChangeCompletion& change, transport::PassingCompletion& completion);
  void Release(const Delayed& due);

  HostFaults& faults_;
  Verbs& verbs_;
  const Processes& processes_;
  std::multimap<Time, Delayed> delayed_;
  std::map<Line, Waiting> lines_;
  std::set<Handle> failing_;  // QPs that have said an error and are about to be in ERR
};

}  // namespace rdmaemu
