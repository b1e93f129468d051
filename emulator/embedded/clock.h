// The time of an embedded host: the machine's or a multiple of it, or one that moves when the host
// has nothing else to do (virtual) or when it is told (manual). Begins at 0. Other than a host
// process's, virtual time stands while nothing happens: so that a program of one thread repeats
// itself.
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
  // Real and scaled: moves by itself.
  bool runs() const { return mode_ == Mode::kReal || mode_ == Mode::kScaled; }
  Time Now() const { return runs() ? machine_.At(Time(runtime::RealNow() - began_)) : now_; }

  // Of a clock that does not run: never backwards.
  void MoveTo(Time time) {
    held_since_.reset();
    if (time > now_) now_ = time;
  }
  // Time may not jump over a deadline that runs against the program: until then it passes as the
  // machine's does, counted from the first call after a move.
  void PassUntil(Time deadline) {
    const Time machine = runtime::RealNow();
    if (held_since_) now_ = std::max(now_, std::min(deadline, now_ + (machine - *held_since_)));
    held_since_ = machine;
  }
  // How long the machine takes until then.
  Duration MachineTimeUntil(Time deadline) const {
    return machine_.RealTime(std::max(Duration::zero(), deadline - Now()));
  }

 private:
  Mode mode_;
  runtime::ScaledClock machine_;
  Time began_;
  Time now_{};
  std::optional<Time> held_since_;  // of the machine
};

}  // namespace rdmaemu::embedded
