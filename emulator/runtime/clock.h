// The clocks of a host (docs/time.md). The pure core gets all time from one of them. The runtime
// itself waits in real time for clients, descriptors and other hosts.
#pragma once

#include <time.h>

#include <cstdint>
#include <string_view>

#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// Returns the machine's time, also in a program to which librdmaemu.so.1 gives other clocks.
Duration MachineTime(clockid_t clock);

// Returns CLOCK_MONOTONIC. All hosts of a machine share this base, so that their traces can be
// merged.
Time RealNow();

struct ClockOption {
  enum class Mode : uint8_t {
    kReal,
    kScaled,   // `parts_per_million` times as fast as real
    kVirtual,  // as real, but jumps to the next deadline when nothing else can happen before it
    kManual,   // advances only on request
    kProgram,  // begins at 0; jumps as kVirtual when all programs wait; programs see this time
  };
  // Bounds of the scale. Years of monotonic time times the largest scale fit into a Time.
  static constexpr int64_t kMinPartsPerMillion = 10'000, kMaxPartsPerMillion = 100'000'000;

  Mode mode = Mode::kReal;
  int64_t parts_per_million = 1'000'000;
};

// Parses "real", "scaled:K", "virtual", "manual" or "program". An empty text means "real". K is a
// decimal number from 0.01 to 100 with at most six decimal places.
OrMessage<ClockOption> ParseClockOption(std::string_view text);

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the host's time at a moment of RealNow().
  virtual Time At(Time real) const = 0;
  // Returns how much real time passes while the host's time advances by `length`. Duration::max()
  // means that the host's time does not advance by itself.
  virtual Duration RealTime(Duration length) const = 0;
};

class RealClock final : public Clock {
 public:
  Time At(Time real) const override { return real; }
  Duration RealTime(Duration length) const override { return length; }
};

class ScaledClock final : public Clock {
 public:
  explicit ScaledClock(int64_t parts_per_million) : parts_per_million_(parts_per_million) {}
  Time At(Time real) const override;
  Duration RealTime(Duration length) const override;

 private:
  int64_t parts_per_million_;
};

}  // namespace rdmaemu::runtime
