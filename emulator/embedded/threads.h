#pragma once

namespace rdmaemu::embedded {

// The number of threads of this process, by the kernel's count. Unlike `__libc_single_threaded` it
// shrinks when a thread ends. Costs one stat(2) once the process has started a thread; without
// /proc the answer is 1 or kManyThreads. Thread-safe.
inline constexpr int kManyThreads = 1 << 20;
int CountThreads();

}  // namespace rdmaemu::embedded
