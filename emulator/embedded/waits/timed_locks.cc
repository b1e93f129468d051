// Time-outs of locks, joins and signals in program time. No event reports when a lock is free, so
// the thread tries again at intervals. The C library's functions are called without a sanitizer's
// interceptors, because these count the caller's own calls.
#include <pthread.h>
#include <signal.h>
#include <threads.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// `take` returns EBUSY while the object cannot be taken. Any other value is the result.
template <class Take>
int DriveUntilTaken(const char* what, clockid_t clock, const timespec& until, const Take& take) {
  const KeepsErrno keeps;
  for (;;) {
    int result = take();
    if (result != EBUSY) return keeps.Answer(result);
    const std::function<bool()> try_again = [&] { return (result = take()) != EBUSY; };
    const Duration left = std::max(Duration::zero(), ToDuration(until) - ProgramNow(clock));
    const WaitsFor waits{.is_foreign = true, .take = &try_again, .what = what};
    const ProcessHost::WaitEnd end = ProcessHost::Get().DriveWait(waits, left);
    if (end == ProcessHost::WaitEnd::kReady) return keeps.Answer(result);
    // These functions continue after a signal (pthread_mutex_timedlock(3)).
    if (end != ProcessHost::WaitEnd::kInterrupted) return ETIMEDOUT;
  }
}

bool IsInProgramTime(clockid_t clock, const timespec* until) {
  return ProgramClock::IsOfHosts() && DrivesHosts() && ProgramClock::Covers(clock) &&
         until != nullptr && IsValid(*until);
}

template <class Function, class Object, class Take>
int Timed(const char* what, clockid_t clock, const timespec* until, const Take& take,
          const Function& libc, Object* object) {
  if (IsInProgramTime(clock, until)) return DriveUntilTaken(what, clock, *until, take);
  if (until == nullptr || !IsValid(*until)) return libc(object, until);
  const timespec machine = ToMachine(clock, *until);
  return libc(object, &machine);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu::embedded;

RDMAEMU_WAIT int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) noexcept {
  return Timed(
      "pthread_mutex_timedlock", CLOCK_REALTIME, until, [=] { return Libc().mutex_trylock(mutex); },
      Libc().mutex_timedlock, mutex);
}

RDMAEMU_WAIT int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                         const timespec* until) noexcept {
  return Timed(
      "pthread_mutex_clocklock", clock, until, [=] { return Libc().mutex_trylock(mutex); },
      [=](pthread_mutex_t* each, const timespec* end) {
        return Libc().mutex_clocklock(each, clock, end);
      },
      mutex);
}

RDMAEMU_WAIT int mtx_timedlock(mtx_t* mutex, const timespec* until) {
  const int error = pthread_mutex_timedlock(reinterpret_cast<pthread_mutex_t*>(mutex), until);
  if (error == 0) return thrd_success;
  return error == ETIMEDOUT ? thrd_timedout : thrd_error;
}

RDMAEMU_WAIT int pthread_rwlock_timedrdlock(pthread_rwlock_t* lock,
                                            const timespec* until) noexcept {
  return Timed(
      "pthread_rwlock_timedrdlock", CLOCK_REALTIME, until,
      [=] { return Libc().rwlock_tryrdlock(lock); }, Libc().rwlock_timedrdlock, lock);
}

RDMAEMU_WAIT int pthread_rwlock_timedwrlock(pthread_rwlock_t* lock,
                                            const timespec* until) noexcept {
  return Timed(
      "pthread_rwlock_timedwrlock", CLOCK_REALTIME, until,
      [=] { return Libc().rwlock_trywrlock(lock); }, Libc().rwlock_timedwrlock, lock);
}

RDMAEMU_WAIT int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock,
                                            const timespec* until) noexcept {
  return Timed(
      "pthread_rwlock_clockrdlock", clock, until, [=] { return Libc().rwlock_tryrdlock(lock); },
      [=](pthread_rwlock_t* each, const timespec* end) {
        return Libc().rwlock_clockrdlock(each, clock, end);
      },
      lock);
}

RDMAEMU_WAIT int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock,
                                            const timespec* until) noexcept {
  return Timed(
      "pthread_rwlock_clockwrlock", clock, until, [=] { return Libc().rwlock_trywrlock(lock); },
      [=](pthread_rwlock_t* each, const timespec* end) {
        return Libc().rwlock_clockwrlock(each, clock, end);
      },
      lock);
}

RDMAEMU_WAIT int pthread_clockjoin_np(pthread_t thread, void** result, clockid_t clock,
                                      const timespec* until) {
  if (IsInProgramTime(clock, until)) {
    return DriveUntilTaken("pthread_clockjoin_np", clock, *until,
                           [=] { return Libc().tryjoin(thread, result); });
  }
  if (until == nullptr || !IsValid(*until)) return Libc().clockjoin(thread, result, clock, until);
  const timespec machine = ToMachine(clock, *until);
  return Libc().clockjoin(thread, result, clock, &machine);
}

RDMAEMU_WAIT int pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until) {
  return pthread_clockjoin_np(thread, result, CLOCK_REALTIME, until);
}

RDMAEMU_WAIT int sigtimedwait(const sigset_t* signals, siginfo_t* info, const timespec* timeout) {
  if (timeout == nullptr || !IsInProgramTime(CLOCK_MONOTONIC, timeout)) {
    return Libc().sigtimedwait(signals, info, timeout);
  }
  const KeepsErrno keeps;
  int taken = -1;
  const std::function<bool()> take = [&] {
    const timespec at_once{};
    taken = Libc().sigtimedwait(signals, info, &at_once);
    return taken > 0;
  };
  if (take()) return keeps.Answer(taken);
  const WaitsFor waits{.is_foreign = true, .take = &take, .what = "sigtimedwait"};
  switch (ProcessHost::Get().DriveWait(waits, ToDuration(*timeout))) {
    case ProcessHost::WaitEnd::kReady:
      return keeps.Answer(taken);
    case ProcessHost::WaitEnd::kInterrupted:
      errno = EINTR;
      return -1;
    default:
      errno = EAGAIN;
      return -1;
  }
}
