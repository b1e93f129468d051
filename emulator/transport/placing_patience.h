// How a host waits for a thread of a program that has taken a received payload, and copies it to
// its place. The copy takes less than a microsecond, unless the thread does not run. The host
// waits, because a later request may be for the same bytes: the thread must not copy after it.
#pragma once

#include "emulator/base/memory.h"

namespace rdmaemu::transport {

class PlacingPatience {
 public:
  PlacingPatience(Memory& memory, ProcessId process) : memory_(memory), process_(process) {}

  // Waits until `has_placed` returns true. Returns false if the process is stopped, or if a thread
  // has not run for about 0.1 s. The waits of one object have this time together.
  template <class HasPlaced>
  bool Await(const HasPlaced& has_placed) {
    for (int i = 0; i < kLooksWithoutYield; i++) {
      if (has_placed()) return true;
    }
    for (; looks_ < kMostLooks; looks_++) {
      if (has_placed()) return true;
      if (looks_ >= kYieldsAtFirst && memory_.IsStopped(process_)) break;
      if (looks_ < kMostYields) {
        memory_.LetOthersRun();
      } else {
        memory_.LetOthersRunLonger();
      }
    }
    return has_placed();
  }

 private:
  static constexpr int kLooksWithoutYield = 100;
  // A thread that waits for a processor gets one meanwhile, unless the machine is busy.
  static constexpr int kYieldsAtFirst = 200;
  static constexpr int kMostYields = 250;
  static constexpr int kMostLooks = kMostYields + 100;  // the last ones with a millisecond between

  Memory& memory_;
  const ProcessId process_;
  int looks_ = 0;
};

}  // namespace rdmaemu::transport
