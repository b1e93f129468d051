// The door of asynchronous events: they say something else, come later or never.
#pragma once

#include <map>
#include <optional>

#include "emulator/host/faults.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class AsyncFaults final : public AsyncEventDoor {
 public:
  // Events that wait; more are lost.
  static constexpr size_t kMaxDelayed = 4096;

  AsyncFaults(HostFaults& faults, Verbs& verbs, const Processes& processes)
      : faults_(faults), verbs_(verbs), processes_(processes) {}

  bool Passes(Context& context, AsyncEvent& event) override;

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

 private:
  struct Delayed {
    GroupId group;
    Handle context;
    AsyncEvent event;
  };

  HostFaults& faults_;
  Verbs& verbs_;
  const Processes& processes_;
  std::multimap<Time, Delayed> delayed_;
};

}  // namespace rdmaemu
