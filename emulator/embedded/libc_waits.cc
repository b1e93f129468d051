#include "emulator/embedded/libc_waits.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace rdmaemu::embedded {
namespace {

void* FindIn(void* scope, const char* name, const char* version) {
  void* const found = version == nullptr ? nullptr : dlvsym(scope, name, version);
  return found != nullptr ? found : dlsym(scope, name);
}

bool IsOwn(void* function) {
  Dl_info its, own;
  return dladdr(function, &its) != 0 && dladdr(reinterpret_cast<void*>(&IsOwn), &own) != 0 &&
         its.dli_fbase == own.dli_fbase;
}

// When another library of the program links this library, this library is behind the C library.
// RTLD_NEXT then finds nothing.
template <class Function>
void Find(Function& function, const char* name, const char* version = nullptr) {
  void* found = FindIn(RTLD_NEXT, name, version);
  if (found == nullptr) found = FindIn(RTLD_DEFAULT, name, version);
  function = found != nullptr && !IsOwn(found) ? reinterpret_cast<Function>(found) : nullptr;
}

LibcWaits FindAll() {
  LibcWaits libc;
  Find(libc.poll, "poll");
  Find(libc.ppoll, "ppoll");
  Find(libc.select, "select");
  Find(libc.pselect, "pselect");
  Find(libc.epoll_wait, "epoll_wait");
  Find(libc.epoll_pwait, "epoll_pwait");
  Find(libc.epoll_pwait2, "epoll_pwait2");
  Find(libc.nanosleep, "nanosleep");
  Find(libc.clock_nanosleep, "clock_nanosleep");
  Find(libc.read, "read");
  // x86-64 has older versions of these functions with another layout of pthread_cond_t.
  Find(libc.cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
  Find(libc.cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
  Find(libc.cond_clockwait, "pthread_cond_clockwait");
  Find(libc.cond_signal, "pthread_cond_signal", "GLIBC_2.3.2");
  Find(libc.cond_broadcast, "pthread_cond_broadcast", "GLIBC_2.3.2");
  Find(libc.sem_post, "sem_post");
  Find(libc.sem_timedwait, "sem_timedwait");
  Find(libc.sem_clockwait, "sem_clockwait");
  Find(libc.mutex_trylock, "pthread_mutex_trylock");
  Find(libc.rwlock_tryrdlock, "pthread_rwlock_tryrdlock");
  Find(libc.rwlock_trywrlock, "pthread_rwlock_trywrlock");
  Find(libc.tryjoin, "pthread_tryjoin_np");
  Find(libc.mutex_timedlock, "pthread_mutex_timedlock");
  Find(libc.mutex_clocklock, "pthread_mutex_clocklock");
  Find(libc.rwlock_timedrdlock, "pthread_rwlock_timedrdlock");
  Find(libc.rwlock_timedwrlock, "pthread_rwlock_timedwrlock");
  Find(libc.rwlock_clockrdlock, "pthread_rwlock_clockrdlock");
  Find(libc.rwlock_clockwrlock, "pthread_rwlock_clockwrlock");
  Find(libc.timedjoin, "pthread_timedjoin_np");
  Find(libc.clockjoin, "pthread_clockjoin_np");
  Find(libc.sigtimedwait, "sigtimedwait");
  Find(libc.syscall, "syscall");
  Find(libc.clock_gettime, "clock_gettime");
  Find(libc.gettimeofday, "gettimeofday");
  Find(libc.time, "time");
  Find(libc.timespec_get, "timespec_get");
  Find(libc.timerfd_create, "timerfd_create");
  Find(libc.timerfd_settime, "timerfd_settime");
  Find(libc.timerfd_gettime, "timerfd_gettime");
  // x86-64 has older versions of these functions with another timer_t.
  Find(libc.timer_create, "timer_create", "GLIBC_2.3.3");
  Find(libc.timer_settime, "timer_settime", "GLIBC_2.3.3");
  Find(libc.timer_gettime, "timer_gettime", "GLIBC_2.3.3");
  Find(libc.timer_getoverrun, "timer_getoverrun", "GLIBC_2.3.3");
  Find(libc.timer_delete, "timer_delete", "GLIBC_2.3.3");
  Find(libc.alarm, "alarm");
  Find(libc.setitimer, "setitimer");
  Find(libc.getitimer, "getitimer");
  return libc;
}

}  // namespace

// Must not block: a lock of the C++ library waits by syscall(2), which is one of these functions.
// Threads that search at the same time find the same functions.
const LibcWaits& Libc() {
  constexpr uint32_t kMostAtOnce = 64;
  static constinit std::array<LibcWaits, kMostAtOnce> places{};
  static constinit std::atomic<uint32_t> taken{0};
  static constinit std::atomic<const LibcWaits*> known{nullptr};
  const LibcWaits* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  const uint32_t place = taken.fetch_add(1);
  if (place < kMostAtOnce) {
    places[place] = FindAll();
    known.store(&places[place], std::memory_order_release);
  }
  while ((found = known.load(std::memory_order_acquire)) == nullptr) continue;
  return *found;
}

int CountReady(std::span<pollfd> fds) {
  int ready;
  do {
    ready = Libc().poll(fds.data(), fds.size(), 0);
  } while (ready < 0 && errno == EINTR);
  return ready;
}

}  // namespace rdmaemu::embedded
