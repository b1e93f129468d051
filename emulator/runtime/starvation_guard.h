// Frees a thread that keeps to one processor, if it gets no time there. Linux 6.18 may give a
// processor to threads that yield to each other for seconds, while a thread of another session
// (sched_autogroup) waits for it. The waiting thread does not run, so another thread must free it.
#pragma once

#include <sched.h>
#include <sys/types.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

// Decides from looks at a thread whether it gets no time.
class StarvationRule {
 public:
  // `ran_for` is the processor time of the thread. `is_ready`: it runs, or waits for a processor.
  // Returns true if the thread was ready at this look and the last one, and has got no processor
  // time since the one before.
  bool IsStarved(Duration ran_for, bool is_ready) {
    const bool ran = !ran_for_ || *ran_for_ != ran_for;
    ran_for_ = ran_for;
    ready_looks_ = !ran && is_ready ? ready_looks_ + 1 : 0;
    const bool sleeps = !ran && !is_ready;
    intervals_ = sleeps ? std::min(intervals_ * 2, kMostIntervals) : 1;
    return ready_looks_ >= kReadyLooks;
  }
  // Returns the number of intervals until the next look. A thread that sleeps is looked at less
  // often.
  int intervals() const { return intervals_; }

 private:
  static constexpr int kReadyLooks = 2;
  static constexpr int kMostIntervals = 8;

  std::optional<Duration> ran_for_;  // at the last look
  int ready_looks_ = 0;              // in a row, without any processor time
  int intervals_ = 1;
};

class StarvationGuard {
 public:
  // A thread that is ready to run and has not run for two intervals is freed.
  explicit StarvationGuard(Duration interval = std::chrono::milliseconds(20))
      : interval_(interval) {}
  // Ends the guard's own thread.
  ~StarvationGuard();
  StarvationGuard(const StarvationGuard&) = delete;
  StarvationGuard& operator=(const StarvationGuard&) = delete;

  // The calling thread has the affinity `kept` from now on, and gets `before` when it is freed.
  // Returns false if the guard's own thread cannot start, so that the thread must free itself.
  bool Watch(const cpu_set_t& kept, const cpu_set_t& before);
  // The thread that called Watch keeps to no processor any more.
  void Ignore();
  // Returns true if the thread was freed since the last call.
  bool TakeFreed() { return is_freed_.exchange(false); }

 private:
  struct Watched {
    pid_t thread;
    clockid_t clock;  // of its processor time
    cpu_set_t kept, before;
    StarvationRule rule;
  };
  void Run();
  void Look(Watched& watched);
  void Free(const Watched& watched);

  const Duration interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Watched> watched_;
  std::atomic<bool> is_freed_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace rdmaemu::runtime
