// The program's timers while the hosts' time is the program's time. They replace those of
// timerfd_create(2), timer_create(2), alarm(2) and setitimer(2). A timer expires when the hosts'
// time reaches its deadline. Not thread-safe: ProcessHost's lock guards it. Signals are sent with
// the lock held, so a caller outside a wait blocks them meanwhile (HeldSignals).
#pragma once

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "emulator/base/time.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::embedded {

// The values of a timer's settime and gettime functions, in the hosts' time.
struct TimerSetting {
  std::optional<Time> due;  // nullopt: disarmed
  Duration interval{};      // zero: expires once
};

class ProgramTimer {
 public:
  explicit ProgramTimer(clockid_t clock) : clock(clock) {}
  virtual ~ProgramTimer() = default;
  const clockid_t clock;  // clock of absolute times
  TimerSetting setting;
  // The number of expirations that were not reported one by one.
  uint64_t overrun = 0;
  // Returns the value of timer_getoverrun(2).
  int OverrunCount() const {
    return static_cast<int>(std::min<uint64_t>(overrun, std::numeric_limits<int>::max()));
  }
  // Records `times` expirations. Returns false if the program can no longer notice them.
  virtual bool Expire(uint64_t times) = 0;
  // Returns true if the program can no longer access the timer.
  virtual bool IsClosed() const { return false; }
  // Clears the count of expirations, as setting a timer does (timerfd_settime(2)).
  virtual void ForgetExpirations() {}
};

class ProgramTimers {
 public:
  static constexpr size_t kFirstForget = 16;
  // Limit for one process. Above it, creating a timer fails with EMFILE or EAGAIN.
  static constexpr size_t kMaxTimers = 65536;

  // Creates a timer descriptor as timerfd_create(2): an eventfd that is readable after an
  // expiration. Returns the descriptor, or -1 and errno.
  int CreateDescriptor(clockid_t clock, int flags);
  // Returns the timer of a descriptor or of its duplicate. Returns nullptr for other descriptors.
  ProgramTimer* OfDescriptor(int fd);

  // Creates a timer that has the id of a kernel timer. The kernel timer itself is never armed.
  // Returns false above kMaxTimers.
  bool CreateSignalling(timer_t id, clockid_t clock, const sigevent& event);
  ProgramTimer* OfId(timer_t id);
  void Delete(timer_t id);

  // The timer of alarm(2) and of setitimer(2) with ITIMER_REAL.
  ProgramTimer& alarm() { return *alarm_; }

  std::optional<Time> NextDeadline() const;
  // Expires all timers that are due.
  void Expire(Time now);
  // Returns true if a signal was sent since the last call.
  bool TakeSignalled();
  // Sets a timer of this object. A timer whose deadline has passed expires at once.
  void Set(ProgramTimer& timer, const TimerSetting& setting, Time now);
  // Removes all timers in a forked child, because a child inherits none (timer_create(2),
  // alarm(2)). The parent continues to serve an inherited timerfd.
  void ForgetInChild();
  // Disarms all timers, because the hosts are being closed.
  void Disarm();

  ProgramTimers();

 private:
  bool Expire(ProgramTimer& timer, Time now);
  // Drops closed descriptors when there are forget_at_ or more descriptors.
  void ForgetClosed();

  std::map<uint64_t, std::unique_ptr<ProgramTimer>> descriptors_;  // by the eventfd's id
  std::map<timer_t, std::unique_ptr<ProgramTimer>> signalling_;
  std::unique_ptr<ProgramTimer> alarm_;
  size_t forget_at_ = kFirstForget;  // number of descriptors
};

}  // namespace rdmaemu::embedded
