// Replaces timerfd_create(2), timer_create(2), alarm(2) and setitimer(2). In program time, timers
// expire when the hosts' time reaches their deadlines. Otherwise the timers are the C library's.
#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

itimerspec Remaining(const TimerSetting& setting, Time now) {
  itimerspec left{};
  if (!setting.due) return left;
  left.it_interval = ToTimespec(setting.interval);
  // The remaining time of an armed timer is never zero.
  left.it_value = ToTimespec(std::max(Duration(1), *setting.due - now));
  return left;
}

TimerSetting SettingOf(const itimerspec& given, bool is_absolute, clockid_t clock, Time now) {
  TimerSetting setting;
  const Duration value = ToDuration(given.it_value);
  setting.interval = ToDuration(given.it_interval);
  if (value > Duration::zero()) {
    setting.due = is_absolute ? ProgramClock::HostTime(clock, value) : now + value;
  }
  return setting;
}

bool IsValidSetting(const itimerspec& setting) {
  return IsValid(setting.it_value) && IsValid(setting.it_interval);
}

// Returns 0, or nullopt if the timer is not one of program time.
std::optional<int> Set(const std::function<ProgramTimer*(ProgramTimers&)>& find, bool is_absolute,
                       const itimerspec& given, itimerspec* before) {
  std::optional<int> result;
  ProcessHost::Get().WithTimers([&](ProgramTimers& timers, Time now) {
    ProgramTimer* const timer = find(timers);
    if (timer == nullptr) return 0;
    if (before != nullptr) *before = Remaining(timer->setting, now);
    timers.Set(*timer, SettingOf(given, is_absolute, timer->clock, now), now);
    result = 0;
    return 0;
  });
  return result;
}

std::optional<int> Get(const std::function<ProgramTimer*(ProgramTimers&)>& find,
                       itimerspec* setting) {
  std::optional<int> result;
  ProcessHost::Get().WithTimers([&](ProgramTimers& timers, Time now) {
    const ProgramTimer* const timer = find(timers);
    if (timer == nullptr) return 0;
    *setting = Remaining(timer->setting, now);
    result = 0;
    return 0;
  });
  return result;
}

bool IsProgramTime() { return ProgramClock::IsOfHosts() && !HostsMutex::IsMine(); }

itimerval ToTimeval(const itimerspec& from) {
  const auto convert = [](const timespec& time) {
    return timeval{time.tv_sec, static_cast<suseconds_t>(time.tv_nsec / 1000)};
  };
  return {convert(from.it_interval), convert(from.it_value)};
}

itimerspec ToTimespecs(const itimerval& from) {
  const auto convert = [](const timeval& time) {
    return timespec{time.tv_sec, static_cast<long>(time.tv_usec) * 1000};
  };
  return {convert(from.it_interval), convert(from.it_value)};
}

ProgramTimer* Alarm(ProgramTimers& timers) { return &timers.alarm(); }

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

RDMAEMU_WAIT int timerfd_create(int clock, int flags) noexcept {
  // The kernel checks the arguments.
  const int real = Libc().timerfd_create(clock, flags);
  if (real < 0 || !IsProgramTime() || !ProgramClock::Covers(clock)) return real;
  close(real);
  return ProcessHost::Get().WithTimers(
      [&](ProgramTimers& timers, Time) { return timers.CreateDescriptor(clock, flags); });
}

RDMAEMU_WAIT int timerfd_settime(int fd, int flags, const itimerspec* setting,
                                 itimerspec* before) noexcept {
  constexpr int kFlags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
  if (IsProgramTime() && setting != nullptr && IsValidSetting(*setting) && (flags & ~kFlags) == 0) {
    const auto done = Set([fd](ProgramTimers& timers) { return timers.OfDescriptor(fd); },
                          (flags & TFD_TIMER_ABSTIME) != 0, *setting, before);
    if (done) return *done;
  }
  return Libc().timerfd_settime(fd, flags, setting, before);
}

RDMAEMU_WAIT int timerfd_gettime(int fd, itimerspec* setting) noexcept {
  if (IsProgramTime() && setting != nullptr) {
    const auto done = Get([fd](ProgramTimers& timers) { return timers.OfDescriptor(fd); }, setting);
    if (done) return *done;
  }
  return Libc().timerfd_gettime(fd, setting);
}

RDMAEMU_WAIT int timer_create(clockid_t clock, sigevent* event, timer_t* id) noexcept {
  // The kernel checks the arguments. Its timer is never armed and only provides the id.
  const int result = Libc().timer_create(clock, event, id);
  if (result != 0 || !IsProgramTime() || !ProgramClock::Covers(clock)) return result;
  sigevent meant{};
  meant.sigev_notify = SIGEV_SIGNAL;
  meant.sigev_signo = SIGALRM;
  meant.sigev_value.sival_int = static_cast<int>(reinterpret_cast<intptr_t>(*id));
  if (event != nullptr) meant = *event;
  return ProcessHost::Get().WithTimers([&](ProgramTimers& timers, Time) {
    if (timers.CreateSignalling(*id, clock, meant)) return 0;
    Libc().timer_delete(*id);
    errno = EAGAIN;
    return -1;
  });
}

RDMAEMU_WAIT int timer_settime(timer_t id, int flags, const itimerspec* setting,
                               itimerspec* before) noexcept {
  if (IsProgramTime() && setting != nullptr && IsValidSetting(*setting)) {
    const auto done = Set([id](ProgramTimers& timers) { return timers.OfId(id); },
                          (flags & TIMER_ABSTIME) != 0, *setting, before);
    if (done) return *done;
  }
  return Libc().timer_settime(id, flags, setting, before);
}

RDMAEMU_WAIT int timer_gettime(timer_t id, itimerspec* setting) noexcept {
  if (IsProgramTime() && setting != nullptr) {
    const auto done = Get([id](ProgramTimers& timers) { return timers.OfId(id); }, setting);
    if (done) return *done;
  }
  return Libc().timer_gettime(id, setting);
}

RDMAEMU_WAIT int timer_getoverrun(timer_t id) noexcept {
  if (IsProgramTime()) {
    std::optional<int> overrun;
    ProcessHost::Get().WithTimers([&](ProgramTimers& timers, Time) {
      const ProgramTimer* const timer = timers.OfId(id);
      if (timer != nullptr) overrun = timer->OverrunCount();
      return 0;
    });
    if (overrun) return *overrun;
  }
  return Libc().timer_getoverrun(id);
}

RDMAEMU_WAIT int timer_delete(timer_t id) noexcept {
  if (IsProgramTime()) {
    ProcessHost::Get().WithTimers([&](ProgramTimers& timers, Time) {
      timers.Delete(id);
      return 0;
    });
  }
  return Libc().timer_delete(id);
}

RDMAEMU_WAIT int setitimer(__itimer_which_t which, const itimerval* setting,
                           itimerval* before) noexcept {
  if (!IsProgramTime() || which != ITIMER_REAL || setting == nullptr ||
      !IsValidSetting(ToTimespecs(*setting))) {
    return Libc().setitimer(which, setting, before);
  }
  itimerspec earlier{};
  Set(Alarm, /*is_absolute=*/false, ToTimespecs(*setting), &earlier);
  if (before != nullptr) *before = ToTimeval(earlier);
  return 0;
}

RDMAEMU_WAIT int getitimer(__itimer_which_t which, itimerval* setting) noexcept {
  if (!IsProgramTime() || which != ITIMER_REAL || setting == nullptr) {
    return Libc().getitimer(which, setting);
  }
  itimerspec left{};
  Get(Alarm, &left);
  *setting = ToTimeval(left);
  return 0;
}

RDMAEMU_WAIT unsigned alarm(unsigned time_seconds) noexcept {
  if (!IsProgramTime()) return Libc().alarm(time_seconds);
  itimerspec before{};
  Set(Alarm, /*is_absolute=*/false, {{0, 0}, {static_cast<time_t>(time_seconds), 0}}, &before);
  // Rounds as the kernel does (alarm_setitimer): never to 0 while the timer is armed.
  const timespec& left = before.it_value;
  const bool rounds_up = (left.tv_sec == 0 && left.tv_nsec > 0) || left.tv_nsec >= 500'000'000;
  return static_cast<unsigned>(left.tv_sec) + (rounds_up ? 1 : 0);
}

RDMAEMU_WAIT useconds_t ualarm(useconds_t value_us, useconds_t interval_us) noexcept {
  const auto split = [](useconds_t time) {
    return timeval{time / 1'000'000, static_cast<suseconds_t>(time % 1'000'000)};
  };
  const itimerval setting{split(interval_us), split(value_us)};
  itimerval before{};
  if (setitimer(ITIMER_REAL, &setting, &before) != 0) return static_cast<useconds_t>(-1);
  return static_cast<useconds_t>(before.it_value.tv_sec * 1'000'000 + before.it_value.tv_usec);
}
