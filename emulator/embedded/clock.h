// The time of an embedded host, which begins at 0. The clock shows the machine's time, a multiple
// of it, or a virtual or manual time. Virtual time advances when the host has no other work. Manual
// time advances on request. Unlike in a host process, virtual time does not advance while the hosts
// do nothing, so a program of one thread is repeatable.
#pragma once

#include <algorithm>
#include <optional>

#include "emulator/base/time.h"
#include "emulator/runtime/clock.h"

namespace rdmaemu::embedded {

class EmbeddedClock {
 public:
  using Mode = runtime::ClockOption::Mode;

  explicit EmbeddedClock(runtime::ClockOption option)
      : mode_(option.mode), machine_(option.parts_per_million), began_(runtime::RealNow()) {}

  Mode mode() const { return mode_; }
  // Returns true for real and scaled clocks, which advance by themselves.
  bool runs() const { return mode_ == Mode::kReal || mode_ == Mode::kScaled; }
  Time Now() const { return runs() ? machine_.At(Time(runtime::RealNow() - began_)) : now_; }

  // Sets a virtual or manual clock to `time`. The clock never goes backwards.
  void MoveTo(Time time) {
    held_since_.reset();
    if (time > now_) now_ = time;
  }
  // Advances at the machine's speed to a deadline that time must not jump over. The first call
  // after a move starts the count.
  void PassUntil(Time deadline) {
    const Time machine = runtime::RealNow();
    if (held_since_) now_ = std::max(now_, std::min(deadline, now_ + (machine - *held_since_)));
    held_since_ = machine;
  }
  // Returns how much of the machine's time passes until `deadline`.
  Duration MachineTimeUntil(Time deadline) const {
    return machine_.RealTime(std::max(Duration::zero(), deadline - Now()));
  }

 private:
  Mode mode_;
  runtime::ScaledClock machine_;
  Time began_;
  Time now_{};
  std::optional<Time> held_since_;  // in the machine's time
};

}  // namespace rdmaemu::embedded
