// The process's id without a system call. The C library's getpid(2) is one.
#pragma once

#include <cstdint>

namespace rdmaemu::client {

// Returns getpid(2). Costs one load, except in the first call of each process, and where the kernel
// has no MADV_WIPEONFORK (madvise(2), Linux 4.14). Any thread may call this, after any kind of
// fork. A child that shares its parent's memory (vfork(2)) gets the parent's id.
uint32_t OwnPid();

}  // namespace rdmaemu::client
