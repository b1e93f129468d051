// Waits for a condition variable or a semaphore. The hosts cannot wake them: the last thread that
// begins to wait runs the hosts until another thread has something to do.
#include <pthread.h>
#include <semaphore.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// Until the clock shows `until`; nothing: for ever.
std::optional<Duration> LeftUntil(clockid_t clock, const timespec* until) {
  if (until == nullptr) return std::nullopt;
  timespec now{};
  clock_gettime(clock, &now);
  return std::max(Duration::zero(), ToDuration(*until) - ToDuration(now));
}

// `wait(left)` is the C library's, with a time-out relative to now, or none. Hosts whose clock runs
// must be driven at their time: the wait is cut into pieces.
template <class Wait>
int DriveLockWait(const void* lock, const char* what, clockid_t clock, const timespec* until,
                  const Wait& wait) {
  const KeepsErrno keeps;
  ProcessHost& hosts = ProcessHost::Get();
  struct End {
    ProcessHost& hosts;
    bool has_timed_out = false;
    ~End() { hosts.EndLockWait(has_timed_out); }
  };
  for (;;) {
    const std::optional<Duration> left = LeftUntil(clock, until);
    const std::optional<Duration> piece = hosts.BeginLockWait(lock, what, left);
    End end{hosts};  // a thread may be cancelled in the wait
    const bool is_cut = piece && (!left || *piece < *left);
    const int error = wait(is_cut ? piece : left);
    if (error == ETIMEDOUT && is_cut) continue;
    end.has_timed_out = error == ETIMEDOUT;
    return keeps.Answer(error);
  }
}

timespec AbsoluteTime(clockid_t clock, Duration left) {
  timespec now{};
  clock_gettime(clock, &now);
  return ToTimespec(ToDuration(now) + left);
}

int DriveCondWait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                  const timespec* until) {
  return DriveLockWait(cond, "pthread_cond_wait", clock, until,
                       [&](const std::optional<Duration>& left) {
                         if (!left) return Libc().cond_wait(cond, mutex);
                         const timespec end = AbsoluteTime(CLOCK_MONOTONIC, *left);
                         return Libc().cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &end);
                       });
}

// The clock of pthread_condattr_setclock(3), where glibc (nptl/pthread_cond_common.c) keeps it.
clockid_t ClockOf(const pthread_cond_t& cond) {
  constexpr unsigned kIsMonotonic = 2;
  return (cond.__data.__wrefs & kIsMonotonic) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

bool IsClockOfLocks(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC; }

// 0, or -1 and errno.
int DriveSemWait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  if (sem_trywait(semaphore) == 0) return 0;
  const int error = DriveLockWait(
      semaphore, "sem_timedwait", clock, until, [&](const std::optional<Duration>& left) {
        const timespec end = AbsoluteTime(CLOCK_MONOTONIC, left.value_or(Duration::zero()));
        return Libc().sem_clockwait(semaphore, CLOCK_MONOTONIC, &end) == 0 ? 0 : errno;
      });
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu::embedded;

RDMAEMU_WAIT int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  if (!DrivesHosts()) return Libc().cond_wait(cond, mutex);
  return DriveCondWait(cond, mutex, CLOCK_MONOTONIC, nullptr);
}

RDMAEMU_WAIT int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                                        const timespec* until) {
  if (!DrivesHosts() || !IsValid(*until)) return Libc().cond_timedwait(cond, mutex, until);
  return DriveCondWait(cond, mutex, ClockOf(*cond), until);
}

RDMAEMU_WAIT int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                                        clockid_t clock, const timespec* until) {
  if (!DrivesHosts() || !IsClockOfLocks(clock) || !IsValid(*until)) {
    return Libc().cond_clockwait(cond, mutex, clock, until);
  }
  return DriveCondWait(cond, mutex, clock, until);
}

RDMAEMU_WAIT int pthread_cond_signal(pthread_cond_t* cond) {
  if (DrivesHosts()) ProcessHost::Get().RouseWaitersOf(cond, /*all=*/false);
  return Libc().cond_signal(cond);
}

RDMAEMU_WAIT int pthread_cond_broadcast(pthread_cond_t* cond) {
  if (DrivesHosts()) ProcessHost::Get().RouseWaitersOf(cond, /*all=*/true);
  return Libc().cond_broadcast(cond);
}

RDMAEMU_WAIT int sem_timedwait(sem_t* semaphore, const timespec* until) {
  if (!DrivesHosts() || !IsValid(*until)) return Libc().sem_timedwait(semaphore, until);
  return DriveSemWait(semaphore, CLOCK_REALTIME, until);
}

RDMAEMU_WAIT int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  if (!DrivesHosts() || !IsClockOfLocks(clock) || !IsValid(*until))
    return Libc().sem_clockwait(semaphore, clock, until);
  return DriveSemWait(semaphore, clock, until);
}

RDMAEMU_WAIT int sem_post(sem_t* semaphore) {
  if (DrivesHosts()) ProcessHost::Get().RouseWaitersOf(semaphore, /*all=*/false);
  return Libc().sem_post(semaphore);
}
