// The program's own timers while it lives in the hosts' time: timerfd_create(2), timer_create(2),
// alarm(2) and setitimer(2). A timer expires when the hosts' time reaches it. Not thread-safe:
// ProcessHost's lock guards it. Signals are sent with the lock held, so a caller that is not inside
// a wait blocks them meanwhile (HeldSignals).
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

// What a timer's settime and gettime functions speak of, in the hosts' time.
struct TimerSetting {
  std::optional<Time> due;  // nothing: disarmed
  Duration interval{};      // zero: it expires once
};

class ProgramTimer {
 public:
  explicit ProgramTimer(clockid_t clock) : clock(clock) {}
  virtual ~ProgramTimer() = default;
  const clockid_t clock;  // of absolute times
  TimerSetting setting;
  // How many expirations the program has not been told of one by one.
  uint64_t overrun = 0;
  // As timer_getoverrun(2) tells it.
  int OverrunCount() const {
    return static_cast<int>(std::min<uint64_t>(overrun, std::numeric_limits<int>::max()));
  }
  // It has expired so many times. False: nobody can notice it any more.
  virtual bool Expire(uint64_t times) = 0;
  // The program can no longer reach it.
  virtual bool IsClosed() const { return false; }
  // Setting a timer forgets what it has counted (timerfd_settime(2)).
  virtual void ForgetExpirations() {}
};

class ProgramTimers {
 public:
  static constexpr size_t kFirstForget = 16;
  // Of one process. A program that has more finds EMFILE or EAGAIN.
  static constexpr size_t kMaxTimers = 65536;

  // A descriptor that is readable when the timer has expired, as of timerfd_create(2): an eventfd,
  // whose number is answered. -1 and errno.
  int CreateDescriptor(clockid_t clock, int flags);
  // Which timer a descriptor is, also a duplicate of the first one; nullptr: none of these.
  ProgramTimer* OfDescriptor(int fd);

  // `id` is the kernel's, of a timer that is never armed there. False: there is no room.
  bool CreateSignalling(timer_t id, clockid_t clock, const sigevent& event);
  ProgramTimer* OfId(timer_t id);
  void Delete(timer_t id);

  // The one of alarm(2) and setitimer(2) with ITIMER_REAL.
  ProgramTimer& alarm() { return *alarm_; }

  std::optional<Time> NextDeadline() const;
  // Lets what is due expire.
  void Expire(Time now);
  // A signal was sent since the last call.
  bool TakeSignalled();
  // Of this object. What is due already expires at once.
  void Set(ProgramTimer& timer, const TimerSetting& setting, Time now);
  // In a forked child, which has none of its parent's timers (timer_create(2), alarm(2)). A timerfd
  // that it inherits is the parent's to drive.
  void ForgetInChild();
  // The hosts are closed: no timer expires any more.
  void Disarm();

  ProgramTimers();

 private:
  bool Expire(ProgramTimer& timer, Time now);
  // Forgets descriptors that the program has closed, when there may be many of them.
  void ForgetClosed();

  std::map<uint64_t, std::unique_ptr<ProgramTimer>> descriptors_;  // by the eventfd's id
  std::map<timer_t, std::unique_ptr<ProgramTimer>> signalling_;
  std::unique_ptr<ProgramTimer> alarm_;
  size_t forget_at_ = kFirstForget;  // so many descriptors
};

}  // namespace rdmaemu::embedded
