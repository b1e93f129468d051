// The process's id without a system call. The C library's getpid(2) is one. And the process that
// has connected to the host.
#pragma once

#include <cstdint>

namespace rdmaemu::client {

// Returns getpid(2). Costs one load, except in the first call of each process, and where the kernel
// has no MADV_WIPEONFORK (madvise(2), Linux 4.14). Any thread may call this, after any kind of
// fork. A child that shares its parent's memory (vfork(2)) gets the parent's id.
uint32_t OwnPid();

// Records that this process has connected to its host.
void OwnConnection();
// Returns the id of the process that has connected, if it is not this one. This process is then a
// child of _Fork(3) or clone(2), or a child of fork(2) that has not joined. The memory of its
// regions is that process's. Returns 0 if this process has connected, or no process has. Any thread
// may call this.
uint32_t OtherOwner();

}  // namespace rdmaemu::client
