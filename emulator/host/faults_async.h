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
  // Events that wait, for their time or for somebody who lets go; more are lost.
  static constexpr size_t kMaxDelayed = 4096;

  AsyncFaults(HostFaults& faults, Verbs& verbs, const Processes& processes)
      : faults_(faults), verbs_(verbs), processes_(processes) {}

  bool Passes(Context& context, AsyncEvent& event) override;

  // What barriers hold is queued, in its order, with the next look at what is due.
  void LetGo(Time now, const fault::Release& release);
  // What is held of objects that are no more.
  void ForgetGone();
  const auto& held() const { return held_; }

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
  fault::Held<Delayed> held_;
};

}  // namespace rdmaemu
