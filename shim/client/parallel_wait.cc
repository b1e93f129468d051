#include "shim/client/parallel_wait.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "shim/client/machine_clock.h"

namespace rdmaemu::client {
namespace {

void Spin() {
  for (int i = 0; i < 50; i++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

void SleepFor(uint64_t ns) {
  const int before = errno;
  const timespec time{0, static_cast<long>(ns)};
  (void)MachineSyscall()(SYS_nanosleep, &time, nullptr);
  errno = before;
}

}  // namespace

bool ParallelWait::Take() {
  if (takes_ == 0) begun_ns_ = MachineNow_ns();
  if (takes_++ == 0) return true;
  if (takes_ <= kSpins) {
    Spin();
    return true;
  }
  const uint64_t waited_ns = MachineNow_ns() - begun_ns_;
  if (waited_ns >= most_ns_) return false;
  if (waited_ns < kYieldFor_ns) {
    sched_yield();
  } else {
    SleepFor(kSleep_ns);
  }
  return true;
}

}  // namespace rdmaemu::client
