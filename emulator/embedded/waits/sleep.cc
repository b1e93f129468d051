// Replaces nanosleep(2), usleep(3) and sleep(3).
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// The result of a sleep: error 0, or EINTR with the time left. If not `is_driven`, the C library
// must sleep for `left`.
struct SleepEnd {
  bool is_driven;
  int error;
  Duration left;
};

SleepEnd DriveSleep(Duration time) {
  const Time until = WaitNow() + time;
  ProcessHost& hosts = ProcessHost::Get();
  const ProcessHost::WaitEnd end = hosts.DriveWait({.is_foreign = true, .what = "a sleep"}, time);
  const Duration left = std::max(Duration::zero(), until - WaitNow());
  if (end == ProcessHost::WaitEnd::kTimedOut) return {true, 0, Duration::zero()};
  if (end == ProcessHost::WaitEnd::kInterrupted) return {true, EINTR, left};
  return {false, 0, left};
}

// Sleeps as clock_nanosleep(2). Returns 0 or an errno.
int SleepFor(Duration time, timespec* left) {
  const KeepsErrno keeps;
  if (time <= Duration::zero() && ProgramClock::IsOfHosts()) {
    // A loop of such sleeps waits for time, like a loop that reads a clock.
    if (ProgramClock::IsSpin()) ProcessHost::Get().SpinOnClock();
    return keeps.Answer(0);
  }
  const SleepEnd end = DriveSleep(time);
  if (end.is_driven) {
    if (end.error == EINTR && left != nullptr) *left = ToTimespec(end.left);
    return keeps.Answer(end.error);
  }
  const timespec rest = ToTimespec(end.left);
  return Libc().clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, left);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

RDMAEMU_WAIT int nanosleep(const timespec* time, timespec* left) {
  if (!DrivesHosts() || time == nullptr || !IsValid(*time)) return Libc().nanosleep(time, left);
  const int error = SleepFor(ToDuration(*time), left);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

RDMAEMU_WAIT int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  const bool is_clock_of_time = clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC ||
                                clock == CLOCK_BOOTTIME || clock == CLOCK_TAI;
  const bool is_absolute = (flags & TIMER_ABSTIME) != 0;
  if (time == nullptr || !IsValid(*time) || !is_clock_of_time) {
    return Libc().clock_nanosleep(clock, flags, time, left);
  }
  if (!DrivesHosts()) {
    const timespec machine = is_absolute ? ToMachine(clock, *time) : *time;
    return Libc().clock_nanosleep(clock, flags, &machine, left);
  }
  if (!is_absolute) return SleepFor(ToDuration(*time), left);
  return SleepFor(std::max(Duration::zero(), ToDuration(*time) - ProgramNow(clock)), nullptr);
}

RDMAEMU_WAIT int usleep(useconds_t time_us) {
  const timespec time = ToTimespec(std::chrono::microseconds(time_us));
  return nanosleep(&time, nullptr);
}

RDMAEMU_WAIT unsigned sleep(unsigned time_seconds) {
  const int before = errno;
  const timespec time{static_cast<time_t>(time_seconds), 0};
  timespec left{};
  if (nanosleep(&time, &left) == 0) {
    errno = before;
    return 0;
  }
  return static_cast<unsigned>(left.tv_sec + (left.tv_nsec >= 500'000'000 ? 1 : 0));
}

RDMAEMU_WAIT int thrd_sleep(const timespec* time, timespec* left) {
  const int error = clock_nanosleep(CLOCK_REALTIME, 0, time, left);
  if (error == 0) return 0;
  constexpr int kSignal = -1, kOther = -2;  // thrd_sleep(3)
  return error == EINTR ? kSignal : kOther;
}
