#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rdmaemu::embedded {

// The number of threads of this process, by the kernel's count. Unlike `__libc_single_threaded` it
// shrinks when a thread ends. Costs one stat(2) once the process has started a thread; without
// /proc the answer is 1 or kManyThreads. Thread-safe.
inline constexpr int kManyThreads = 1 << 20;
int CountThreads();

// The processes that this one has started and that live, or have not been waited for; none where
// the kernel does not list them (CONFIG_PROC_CHILDREN). Thread-safe.
std::vector<pid_t> ChildProcesses();

// Another thread sleeps on a futex of `object`. False where the kernel does not say (proc(5),
// /proc/PID/syscall). Thread-safe.
bool DoesOtherWaitFor(const void* object, size_t bytes);

// How long all other threads of this process have run on a processor, together; 0 where the kernel
// does not say (CONFIG_SCHED_INFO). Thread-safe.
uint64_t OthersRan_ns();

// Whether `may_run` is false for all other threads of this process, or those for which it is true
// sleep in the kernel or have ended. A thread that was woken up counts as running at once, before
// it runs. False without /proc. Thread-safe.
bool OthersSleep(const std::function<bool(pid_t)>& may_run);

}  // namespace rdmaemu::embedded
