// Decides when a poll that found nothing may wait. A lock of the program around its polls must be
// free about half as often, at least, as with a driver that never waits.
//
// A thread that waits in a poll holds the lock meanwhile. Other threads on its processor run during
// the wait, and find the lock taken. While the thread polls without waits, the scheduler may
// interrupt it between two polls, when the lock is free. So after each phase with waits, the thread
// polls without waits for as long as it has waited.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace rdmaemu::shim {

// Times are those of a clock that always runs, in nanoseconds. Not thread-safe: one for each
// thread.
class PollWaits {
 public:
  // A thread waits for this time in all before it polls without waits. A phase without waits must
  // be longer than a time slice of the scheduler. In a shorter phase, nothing interrupts the
  // thread.
  static constexpr int64_t kPhase = 10'000'000;
  // The longest phase without waits. One wait may take longer, if the process was stopped.
  static constexpr int64_t kLongestPhase = 100'000'000;
  // The processor time of other threads that counts as none. A thread that wakes up, finds a lock
  // taken and sleeps again uses about this much. The difference of two clocks is less exact than
  // the clocks.
  static constexpr int64_t kNoTime = 5'000;

  bool MayWait(int64_t now) const { return now >= polls_until_; }

  // Call this after each wait. `others_time` returns the processor time that the other threads of
  // the process have used in all. If they used none since the last phase without waits, no thread
  // has found a lock taken, and the thread needs no such phase.
  template <class OthersTime>
  void Waited(int64_t began, int64_t ended, OthersTime&& others_time) {
    waited_ += ended - began;
    if (waited_ < kPhase) return;
    const int64_t others = others_time();
    // A forked child has less processor time than its parent.
    if (std::abs(others - others_) > kNoTime) {
      others_ = others;
      polls_until_ = ended + std::min(waited_, kLongestPhase);
    }
    waited_ = 0;
  }

 private:
  int64_t waited_ = 0;       // since the last phase without waits
  int64_t polls_until_ = 0;  // the end of the last phase without waits
  int64_t others_ = 0;       // processor time of the other threads before the last such phase
};

}  // namespace rdmaemu::shim
