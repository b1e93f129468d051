// How a host waits for a thread of a program that has taken a received payload, and copies it to
// its place. The copy takes less than a microsecond, unless the thread does not run. The host
// waits, because a later request may be for the same bytes: the thread must not copy after it.
#pragma once

#include "emulator/base/memory.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

class PlacingPatience {
 public:
  // The waits are for threads of the group's only process.
  PlacingPatience(Memory& memory, GroupShare& share)
      : memory_(memory),
        share_(share),
        most_looks_(share.vain_placing_waits < kMostVainWaits ? kMostLooks : kMostYields) {}

  // Waits until `has_placed` returns true. Returns false if the process is stopped, or if a thread
  // has not run for about 0.1 s. The waits of one object have this time together.
  template <class HasPlaced>
  bool Await(const HasPlaced& has_placed) {
    for (int i = 0; i < kLooksWithoutYield; i++) {
      if (has_placed()) return true;
    }
    if (looks_ == most_looks_) return has_placed();
    for (; looks_ < most_looks_; looks_++) {
      if (has_placed()) return true;
      if (looks_ >= kYieldsAtFirst && memory_.IsStopped(share_.sole_process)) return has_placed();
      if (looks_ < kMostYields) {
        memory_.LetOthersRun();
      } else {
        memory_.LetOthersRunLonger();
      }
    }
    if (has_placed()) return true;
    share_.vain_placing_waits++;
    return false;
  }

 private:
  static constexpr int kLooksWithoutYield = 100;
  // A thread that waits for a processor gets one meanwhile, unless the machine is busy.
  static constexpr int kYieldsAtFirst = 200;
  static constexpr int kMostYields = 250;
  static constexpr int kMostLooks = kMostYields + 100;  // the last ones with a millisecond between
  // After so many waits in vain, the host only yields. A false claim must not cost it 0.1 s each.
  static constexpr uint32_t kMostVainWaits = 8;

  Memory& memory_;
  GroupShare& share_;
  const int most_looks_;
  int looks_ = 0;
};

}  // namespace rdmaemu::transport
