// Where a host's time comes from (docs/time.md). All time enters the pure core through one of
// these. The runtime's own waiting, for clients, descriptors and other hosts, is always in real
// time.
#pragma once

#include <time.h>

#include <cstdint>
#include <string_view>

#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// What the machine's clock shows, in a program that has other clocks, too (librdmaemu.so.1).
Duration MachineTime(clockid_t clock);

// CLOCK_MONOTONIC: one base for all hosts of a machine, so that their traces can be merged.
Time RealNow();

struct ClockOption {
  enum class Mode : uint8_t {
    kReal,
    kScaled,   // `parts_per_million` times as fast as real
    kVirtual,  // as real, and jumps to the next deadline when nothing else can happen
    kManual,   // moves only when told
    kProgram,  // begins at 0 and jumps as kVirtual, when all programs wait; it is their time, too
  };
  // Bounds of a scale: a monotonic clock of years times the largest fits into a Time.
  static constexpr int64_t kMinPartsPerMillion = 10'000, kMaxPartsPerMillion = 100'000'000;

  Mode mode = Mode::kReal;
  int64_t parts_per_million = 1'000'000;
};

// "real", "scaled:K", "virtual", "manual", "program"; nothing given is "real". K is a decimal
// number from 0.01 to 100 with at most six places.
OrMessage<ClockOption> ParseClockOption(std::string_view text);

class Clock {
 public:
  virtual ~Clock() = default;
  // The host's time at a moment of RealNow().
  virtual Time At(Time real) const = 0;
  // How much real time passes while the host's time moves so far; Duration::max(): it does not
  // move by itself.
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
