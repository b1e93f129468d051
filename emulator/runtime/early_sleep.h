// Detects that a host shares its processor with a process that never waits, such as ib_write_lat,
// which spins on its memory. When the host yields, the kernel gives such a process a whole time
// slice. The host should then sleep at once instead, because the kernel lets a process that wakes
// up interrupt another one.
//
// A wake-up costs more than a yield, so single slices of other processes do not count. The first
// phases with early sleeps are short. They become longer while the process goes on.
#pragma once

#include <algorithm>
#include <chrono>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class EarlySleep {
 public:
  // A yield that takes this long gave a slice away, and a scan that takes this long was
  // interrupted. The kernel lets a process that never waits run for longer. On a slow machine, a
  // program that makes calls may run nearly as long between two calls.
  static constexpr Duration kSlice = std::chrono::milliseconds(1);
  // The host sleeps early if kSlices slices in a window have taken kShare of the window.
  static constexpr Duration kWindow = std::chrono::milliseconds(50);
  static constexpr int kSlices = 3;
  static constexpr Duration kShare = kWindow / 8;
  // A phase has twice the length of the phase before if it begins this soon after that one.
  static constexpr Duration kFirstPhase = std::chrono::milliseconds(50);
  static constexpr Duration kLongestPhase = std::chrono::milliseconds(1600);
  static constexpr Duration kSoon = 3 * kWindow;

  // Call this after each scan, together with the yield that followed.
  void Waited(Duration took, Time now) {
    if (now - window_began_ >= kWindow) {
      window_began_ = now;
      slices_ = 0;
      in_slices_ = {};
    }
    if (took < kSlice || IsOn(now)) return;
    slices_++;
    in_slices_ += took;
    if (slices_ < kSlices || in_slices_ < kShare) return;
    phase_ = now - until_ <= kSoon ? std::min(2 * phase_, kLongestPhase) : kFirstPhase;
    until_ = now + phase_;
  }
  bool IsOn(Time now) const { return now < until_; }

 private:
  Time window_began_{};
  int slices_ = 0;  // in the window
  Duration in_slices_{};
  Duration phase_ = kFirstPhase;
  Time until_{};
};

}  // namespace rdmaemu::runtime
