#include "shim/client/parallel_wait.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "shim/client/machine_clock.h"

namespace rdmaemu::client {
namespace {

constexpr int kPausesOfASpin = 50;

void Spin() {
  for (int i = 0; i < kPausesOfASpin; i++) {
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
  if (takes_++ == 0) {
    begun_ns_ = MachineNow_ns();
  } else if (takes_ <= kSpins) {
    Spin();
  } else if (yields_.Take()) {
    sched_yield();
  } else if (MachineNow_ns() - begun_ns_ < most_ns_) {
    // The other process does not know of this wait, so it raises no event.
    SleepFor(kSleep_ns);
  } else {
    return false;
  }
  return true;
}

}  // namespace rdmaemu::client
