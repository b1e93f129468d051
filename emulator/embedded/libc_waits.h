// The C library's own wait functions. This library exports functions of the same names to the
// program.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <span>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

struct LibcWaits {
  decltype(&::poll) poll;
  decltype(&::ppoll) ppoll;
  decltype(&::select) select;
  decltype(&::pselect) pselect;
  decltype(&::epoll_wait) epoll_wait;
  decltype(&::epoll_pwait) epoll_pwait;
  int (*epoll_pwait2)(int, epoll_event*, int, const timespec*, const sigset_t*);  // glibc 2.35
  decltype(&::nanosleep) nanosleep;
  decltype(&::clock_nanosleep) clock_nanosleep;
  decltype(&::read) read;
  decltype(&::pthread_cond_wait) cond_wait;
  decltype(&::pthread_cond_timedwait) cond_timedwait;
  decltype(&::pthread_cond_clockwait) cond_clockwait;
  decltype(&::pthread_cond_signal) cond_signal;
  decltype(&::pthread_cond_broadcast) cond_broadcast;
  decltype(&::sem_post) sem_post;
  decltype(&::sem_timedwait) sem_timedwait;
  decltype(&::sem_clockwait) sem_clockwait;
  decltype(&::pthread_mutex_trylock) mutex_trylock;
  decltype(&::pthread_rwlock_tryrdlock) rwlock_tryrdlock;
  decltype(&::pthread_rwlock_trywrlock) rwlock_trywrlock;
  decltype(&::pthread_tryjoin_np) tryjoin;
  decltype(&::pthread_mutex_timedlock) mutex_timedlock;
  decltype(&::pthread_mutex_clocklock) mutex_clocklock;
  decltype(&::pthread_rwlock_timedrdlock) rwlock_timedrdlock;
  decltype(&::pthread_rwlock_timedwrlock) rwlock_timedwrlock;
  decltype(&::pthread_rwlock_clockrdlock) rwlock_clockrdlock;
  decltype(&::pthread_rwlock_clockwrlock) rwlock_clockwrlock;
  decltype(&::pthread_timedjoin_np) timedjoin;
  decltype(&::pthread_clockjoin_np) clockjoin;
  decltype(&::sigtimedwait) sigtimedwait;
  decltype(&::syscall) syscall;
  decltype(&::clock_gettime) clock_gettime;
  int (*gettimeofday)(timeval*, void*);
  decltype(&::time) time;
  decltype(&::timespec_get) timespec_get;
  decltype(&::timerfd_create) timerfd_create;
  decltype(&::timerfd_settime) timerfd_settime;
  decltype(&::timerfd_gettime) timerfd_gettime;
  decltype(&::timer_create) timer_create;
  decltype(&::timer_settime) timer_settime;
  decltype(&::timer_gettime) timer_gettime;
  decltype(&::timer_getoverrun) timer_getoverrun;
  decltype(&::timer_delete) timer_delete;
  decltype(&::alarm) alarm;
  int (*setitimer)(int, const itimerval*, itimerval*);
  int (*getitimer)(int, itimerval*);
};

inline timespec ToTimespec(Duration duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

// Returns the functions, looked up once. A function that this C library lacks is null. Thread-safe.
const LibcWaits& Libc();

// Returns how many of `fds` are ready, as poll(2) without a wait. A signal interrupts poll(2) even
// then, but not this call. Thread-safe.
int CountReady(std::span<pollfd> fds);

}  // namespace rdmaemu::embedded
