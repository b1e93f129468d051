// The time of an embedded host: the machine's, a multiple of it, or one that moves when the host
// has nothing else to do (virtual) or when it is told (manual). Begins at 0.
#pragma once

#include <optional>
#include <string_view>

#include "emulator/base/time.h"
#include "emulator/runtime/clock.h"

namespace rdmaemu::embedded {

enum class ClockMode { kReal, kScaled, kVirtual, kManual };

struct ClockChoice {
  static constexpr uint32_t kMaxScale = 1'000'000;
  ClockMode mode = ClockMode::kVirtual;
  uint32_t scale = 1;  // kScaled: so many times as fast as the machine's
};
// "real", "scaled:K", "virtual", "manual"; nothing when it is none of them.
std::optional<ClockChoice> ParseClock(std::string_view text);

class EmbeddedClock {
 public:
  explicit EmbeddedClock(ClockChoice choice) : choice_(choice), began_(machine_.Now()) {}

  ClockMode mode() const { return choice_.mode; }
  // Real and scaled: moves by itself.
  bool runs() const { return mode() == ClockMode::kReal || mode() == ClockMode::kScaled; }
  Time Now() { return runs() ? Time(Passed() * choice_.scale) : now_; }

  // Of a clock that does not run: never backwards.
  void MoveTo(Time time) {
    held_since_.reset();
    if (time > now_) now_ = time;
  }
  // Time may not jump over a deadline that waits for the program: until then it passes as the
  // machine's does, counted from the first call after a move.
  void PassUntil(Time deadline);

  // How long the machine takes until then.
  Duration MachineTimeUntil(Time deadline);

 private:
  Duration Passed() { return machine_.Now() - began_; }

  ClockChoice choice_;
  runtime::RealClock machine_;
  Time began_;
  Time now_{};
  std::optional<Time> held_since_;  // of the machine
};

}  // namespace rdmaemu::embedded
