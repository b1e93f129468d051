// Detects a thread that does nothing but poll in vain.
#pragma once

#include <cstdint>

namespace rdmaemu::shim {

// Times are those of a clock that always runs, in nanoseconds. Not thread-safe: one for each
// thread.
class OnlyPolls {
 public:
  // A thread that needs more time than this from one yield to the next one does other work between
  // its polls. The empty polls between two yields take less than a microsecond.
  static constexpr int64_t kMostNanoseconds = 5'000;

  // Call this before each yield or wait.
  bool Check(int64_t now) const { return now - yielded_at_ <= kMostNanoseconds; }
  // Call this after each yield or wait.
  void Yielded(int64_t now) { yielded_at_ = now; }

 private:
  int64_t yielded_at_ = -kMostNanoseconds - 1;
};

}  // namespace rdmaemu::shim
