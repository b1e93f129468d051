// Replaces waits for a condition variable, a semaphore or a futex. The hosts cannot wake up such a
// wait. The last thread that begins to wait runs the hosts until another thread has work.
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <threads.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// Returns the time until the program's clock shows `until`. nullopt: forever.
std::optional<Duration> LeftUntil(clockid_t clock, const timespec* until) {
  if (until == nullptr) return std::nullopt;
  return std::max(Duration::zero(), ToDuration(*until) - ProgramNow(clock));
}

// `wait(left)` calls the C library's wait with a relative time-out of the machine's time, or none.
// The wait is cut into pieces, because hosts with a running clock must be run on time. In program
// time, the machine's time limits only the pieces.
template <class Wait>
int DriveLockWait(const WaitsFor& what, clockid_t clock, const timespec* until, const Wait& wait) {
  const KeepsErrno keeps;
  ProcessHost& hosts = ProcessHost::Get();
  struct End {
    ProcessHost& hosts;
    bool has_timed_out = false, is_ended = false;
    ~End() {
      if (!is_ended) hosts.EndLockWait(has_timed_out);
    }
  };
  for (bool goes_on = false;; goes_on = true) {
    const bool in_program_time = ProgramClock::IsOfHosts();
    const std::optional<Duration> left = LeftUntil(clock, until);
    const ProcessHost::LockWait begun = hosts.BeginLockWait(what, left, goes_on);
    End end{hosts};  // the thread may be cancelled in the wait
    if (begun.has_expired) {
      const int error = wait(Duration::zero());  // releases the mutex once, as any wait does
      end.has_timed_out = error == ETIMEDOUT;
      return keeps.Answer(error);
    }
    const bool is_cut = in_program_time || (begun.machine && (!left || *begun.machine < *left));
    const int error = wait(is_cut ? begun.machine : left);
    if (error == ETIMEDOUT && is_cut) {
      end.is_ended = true;
      // The C library may have removed the thread from the condition variable before the signal.
      // The caller must therefore check its condition. POSIX allows a wake-up without a signal.
      if (what.condition == nullptr || !hosts.IsLockSignalled()) continue;
      return keeps.Answer(hosts.EndLockWait(false) ? ETIMEDOUT : 0);
    }
    end.has_timed_out = error == ETIMEDOUT;
    end.is_ended = true;
    const bool has_expired = hosts.EndLockWait(end.has_timed_out);
    return keeps.Answer(error == 0 && has_expired ? ETIMEDOUT : error);
  }
}

timespec MachineIn(Duration left) {
  timespec now{};
  Libc().clock_gettime(CLOCK_MONOTONIC, &now);
  return ToTimespec(ToDuration(now) + left);
}

int DriveCondWait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                  const timespec* until) {
  return DriveLockWait({.lock = cond,
                        .is_in_libc = true,
                        .condition = cond,
                        .mutex = mutex,
                        .what = "pthread_cond_wait"},
                       clock, until, [&](const std::optional<Duration>& left) {
                         if (!left) return Libc().cond_wait(cond, mutex);
                         const timespec end = MachineIn(*left);
                         return Libc().cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &end);
                       });
}

int CondTimedWait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock,
                  const timespec* until) {
  if (DrivesHosts()) return DriveCondWait(cond, mutex, clock, until);
  const timespec machine = ToMachine(clock, *until);
  return Libc().cond_clockwait(cond, mutex, clock, &machine);
}

int CondSignal(pthread_cond_t* cond) {
  if (DrivesHosts()) ProcessHost::Get().RouseWaitersOf(cond, /*all=*/false);
  return Libc().cond_signal(cond);
}

int CondBroadcast(pthread_cond_t* cond) {
  if (DrivesHosts()) ProcessHost::Get().RouseWaitersOf(cond, /*all=*/true);
  return Libc().cond_broadcast(cond);
}

int CondWait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  if (!DrivesHosts()) return Libc().cond_wait(cond, mutex);
  return DriveCondWait(cond, mutex, CLOCK_MONOTONIC, nullptr);
}

// Returns the clock of pthread_condattr_setclock(3). glibc stores it in __wrefs
// (nptl/pthread_cond_common.c).
clockid_t ClockOf(const pthread_cond_t& cond) {
  constexpr unsigned kIsMonotonic = 2;
  return (cond.__data.__wrefs & kIsMonotonic) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

bool IsClockOfLocks(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC; }

// Returns 0 or an errno.
int SemWait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  if (ProgramClock::IsOfHosts()) {
    const std::function<bool()> take = [semaphore] { return sem_trywait(semaphore) == 0; };
    const WaitsFor what{
        .lock = semaphore, .is_foreign = true, .take = &take, .what = "sem_timedwait"};
    switch (ProcessHost::Get().DriveWait(what, LeftUntil(clock, until))) {
      case ProcessHost::WaitEnd::kReady:
        return 0;
      case ProcessHost::WaitEnd::kTimedOut:
        return ETIMEDOUT;
      case ProcessHost::WaitEnd::kInterrupted:
        return EINTR;
      default:
        break;
    }
  }
  return DriveLockWait({.lock = semaphore, .is_in_libc = true, .what = "sem_timedwait"}, clock,
                       until, [&](const std::optional<Duration>& left) {
                         const timespec end = MachineIn(left.value_or(Duration::zero()));
                         return Libc().sem_clockwait(semaphore, CLOCK_MONOTONIC, &end) == 0 ? 0
                                                                                            : errno;
                       });
}

// Returns 0, or -1 and errno.
int DriveSemWait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  if (sem_trywait(semaphore) == 0) return 0;
  const KeepsErrno keeps;
  const int error = SemWait(semaphore, clock, until);
  if (error == 0) return keeps.Answer(0);
  errno = error;
  return -1;
}

}  // namespace

long DriveFutexWait(uint32_t* word, int operation, uint32_t value, const timespec* time,
                    uint32_t bits) {
  const bool is_absolute = (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
  const clockid_t clock =
      (operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
  const timespec until = is_absolute ? *time : ToTimespec(ProgramNow(clock) + ToDuration(*time));
  const int private_flag = operation & FUTEX_PRIVATE_FLAG;
  // A wrong value or a bad pointer must end the wait before time passes.
  const timespec no_time{};
  const long checked =
      Libc().syscall(SYS_futex, word, FUTEX_WAIT | private_flag, value, &no_time, nullptr, 0u);
  if (checked == 0 || errno != ETIMEDOUT) return checked;
  const int error = DriveLockWait(
      {.lock = word, .is_in_libc = true, .what = "a futex"}, clock, &until,
      [&](const std::optional<Duration>& left) {
        const timespec end = MachineIn(left.value_or(Duration::zero()));
        const long result = Libc().syscall(
            SYS_futex, word, FUTEX_WAIT_BITSET | private_flag, value, left ? &end : nullptr,
            nullptr, is_absolute ? bits : static_cast<uint32_t>(FUTEX_BITSET_MATCH_ANY));
        return result == 0 ? 0 : errno;
      });
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace rdmaemu::embedded

using namespace rdmaemu::embedded;

RDMAEMU_WAIT int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  return CondWait(cond, mutex);
}

RDMAEMU_WAIT int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                                        const timespec* until) {
  if (!IsValid(*until)) return Libc().cond_timedwait(cond, mutex, until);
  return CondTimedWait(cond, mutex, ClockOf(*cond), until);
}

RDMAEMU_WAIT int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                                        clockid_t clock, const timespec* until) {
  if (!IsClockOfLocks(clock) || !IsValid(*until)) {
    return Libc().cond_clockwait(cond, mutex, clock, until);
  }
  return CondTimedWait(cond, mutex, clock, until);
}

RDMAEMU_WAIT int pthread_cond_signal(pthread_cond_t* cond) { return CondSignal(cond); }
RDMAEMU_WAIT int pthread_cond_broadcast(pthread_cond_t* cond) { return CondBroadcast(cond); }

RDMAEMU_WAIT int sem_timedwait(sem_t* semaphore, const timespec* until) {
  if (!IsValid(*until)) return Libc().sem_timedwait(semaphore, until);
  if (DrivesHosts()) return DriveSemWait(semaphore, CLOCK_REALTIME, until);
  const timespec machine = ToMachine(CLOCK_REALTIME, *until);
  return Libc().sem_timedwait(semaphore, &machine);
}

RDMAEMU_WAIT int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  if (!IsClockOfLocks(clock) || !IsValid(*until)) {
    return Libc().sem_clockwait(semaphore, clock, until);
  }
  if (DrivesHosts()) return DriveSemWait(semaphore, clock, until);
  const timespec machine = ToMachine(clock, *until);
  return Libc().sem_clockwait(semaphore, clock, &machine);
}

RDMAEMU_WAIT int sem_post(sem_t* semaphore) {
  if (!DrivesHosts()) return Libc().sem_post(semaphore);
  ProcessHost::Get().RouseWaitersOf(semaphore, /*all=*/false);
  const int result = Libc().sem_post(semaphore);
  if (ProgramClock::IsOfHosts()) ProcessHost::Get().WakeTakersOf(semaphore);
  return result;
}

// The C library's own threads.h functions call internal names that cannot be replaced.
namespace {
pthread_cond_t* Of(cnd_t* condition) { return reinterpret_cast<pthread_cond_t*>(condition); }
pthread_mutex_t* Of(mtx_t* mutex) { return reinterpret_cast<pthread_mutex_t*>(mutex); }
int ThreadsResult(int error) {
  if (error == 0) return thrd_success;
  return error == ETIMEDOUT ? thrd_timedout : thrd_error;
}
}  // namespace

RDMAEMU_WAIT int cnd_wait(cnd_t* condition, mtx_t* mutex) {
  return ThreadsResult(CondWait(Of(condition), Of(mutex)));
}
RDMAEMU_WAIT int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
  if (!IsValid(*until)) return thrd_error;
  return ThreadsResult(CondTimedWait(Of(condition), Of(mutex), CLOCK_REALTIME, until));
}
RDMAEMU_WAIT int cnd_signal(cnd_t* condition) { return ThreadsResult(CondSignal(Of(condition))); }
RDMAEMU_WAIT int cnd_broadcast(cnd_t* condition) {
  return ThreadsResult(CondBroadcast(Of(condition)));
}
