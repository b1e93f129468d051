#include "emulator/embedded/libc_waits.h"

#include <dlfcn.h>

namespace rdmaemu::embedded {
namespace {

template <class Function>
void Find(Function& function, const char* name, const char* version = nullptr) {
  void* found = version == nullptr ? nullptr : dlvsym(RTLD_NEXT, name, version);
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  function = reinterpret_cast<Function>(found);
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
  // x86-64 has older versions of these with another layout of pthread_cond_t.
  Find(libc.cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
  Find(libc.cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
  Find(libc.cond_clockwait, "pthread_cond_clockwait");
  Find(libc.cond_signal, "pthread_cond_signal", "GLIBC_2.3.2");
  Find(libc.cond_broadcast, "pthread_cond_broadcast", "GLIBC_2.3.2");
  Find(libc.sem_post, "sem_post");
  Find(libc.sem_timedwait, "sem_timedwait");
  Find(libc.sem_clockwait, "sem_clockwait");
  return libc;
}

}  // namespace

const LibcWaits& Libc() {
  static const LibcWaits libc = FindAll();
  return libc;
}

}  // namespace rdmaemu::embedded
