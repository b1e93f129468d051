// The door of asynchronous events: rules change, delay or drop them.
#pragma once

#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/programs.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class AsyncFaults final : public AsyncEventDoor {
 public:
  // Limit of the delayed and held events. Further events are lost.
  static constexpr size_t kMaxDelayed = 4096;

  AsyncFaults(HostFaults& faults, Verbs& verbs, const Programs& programs)
      : faults_(faults),
        verbs_(verbs),
        programs_(programs),
        deferred_(kMaxDelayed, faults.counters().delayed_async_events_full) {}

  bool Passes(Context& context, AsyncEvent& event) override;

  // Drops the pending events of destroyed objects.
  void ForgetGone();
  void Expire(Time now);
  auto& deferred() { return deferred_; }
  const auto& deferred() const { return deferred_; }

 private:
  struct Delayed {
    GroupId group;
    Handle context;
    AsyncEvent event;
  };

  HostFaults& faults_;
  Verbs& verbs_;
  const Programs& programs_;
  Deferred<Delayed> deferred_;
};

}  // namespace rdmaemu
