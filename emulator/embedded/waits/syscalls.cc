// Replaces syscall(2). The C++ library waits for futures by syscall(2), and some programs use it
// for all system calls. This file handles only waits, and clocks in program time. The C library
// makes all other calls.
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {

// Defined in locks.cc.
long DriveFutexWait(uint32_t* word, int operation, uint32_t value, const timespec* time,
                    uint32_t bits);

namespace {

template <class Type>
Type As(long argument) {
  return reinterpret_cast<Type>(argument);
}

bool IsTimedFutexWait(const long (&arguments)[6]) {
  const int command = static_cast<int>(arguments[1]) & FUTEX_CMD_MASK;
  const auto* const time = As<const timespec*>(arguments[3]);
  return (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && time != nullptr &&
         IsValid(*time);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu::embedded;

// Exported under the name of its symbol. A function of six arguments finds them where callers of
// the variadic function put them, even if they pass fewer.
RDMAEMU_WAIT long RdmaemuSyscall(long number, long a0, long a1, long a2, long a3, long a4,
                                 long a5) __asm__("syscall");

long RdmaemuSyscall(long number, long a0, long a1, long a2, long a3, long a4, long a5) {
  const long a[6] = {a0, a1, a2, a3, a4, a5};
  if (ProgramClock::IsOfHosts() && DrivesHosts()) {
    switch (number) {
      case SYS_futex:
        if (!IsTimedFutexWait(a)) break;
        return DriveFutexWait(As<uint32_t*>(a[0]), static_cast<int>(a[1]),
                              static_cast<uint32_t>(a[2]), As<const timespec*>(a[3]),
                              static_cast<uint32_t>(a[5]));
      case SYS_clock_gettime:
        return clock_gettime(static_cast<clockid_t>(a[0]), As<timespec*>(a[1]));
      case SYS_gettimeofday:
        return gettimeofday(As<timeval*>(a[0]), As<void*>(a[1]));
      case SYS_nanosleep:
        return nanosleep(As<const timespec*>(a[0]), As<timespec*>(a[1]));
      case SYS_clock_nanosleep: {
        const int error = clock_nanosleep(static_cast<clockid_t>(a[0]), static_cast<int>(a[1]),
                                          As<const timespec*>(a[2]), As<timespec*>(a[3]));
        if (error == 0) return 0;
        errno = error;
        return -1;
      }
      case SYS_poll:
        return poll(As<pollfd*>(a[0]), static_cast<nfds_t>(a[1]), static_cast<int>(a[2]));
      case SYS_epoll_wait:
        return epoll_wait(static_cast<int>(a[0]), As<epoll_event*>(a[1]), static_cast<int>(a[2]),
                          static_cast<int>(a[3]));
      default:
        break;
    }
  }
  return Libc().syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
