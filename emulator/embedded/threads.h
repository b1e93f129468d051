// Inspects the threads of this process through /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace rdmaemu::embedded {

// Returns the number of threads that the kernel counts for this process. Unlike
// `__libc_single_threaded`, the number shrinks when a thread ends. The call costs one stat(2) after
// the process has started a thread. Without /proc returns 1 or kManyThreads. Thread-safe.
inline constexpr int kManyThreads = 1 << 20;
int CountThreads();

// Returns true if another thread sleeps on a futex of `object`. Returns false without
// /proc/PID/syscall (proc(5)). Thread-safe.
bool DoesOtherWaitFor(const void* object, size_t bytes);

// Returns the total run time of those other threads of this process for which `counts` returns
// true. Returns 0 without CONFIG_SCHED_INFO. Thread-safe.
uint64_t OthersRan_ns(const std::function<bool(pid_t)>& counts);

// Returns true if all other threads for which `may_run` is true sleep in the kernel or have ended,
// all at the same moment. A woken thread counts as running before it actually runs. Returns false
// without /proc. Thread-safe.
bool OthersSleep(const std::function<bool(pid_t)>& may_run);

// Returns the name of a thread of this process (pthread_setname_np(3)). Empty without /proc.
std::string NameOfThread(pid_t thread);

}  // namespace rdmaemu::embedded
