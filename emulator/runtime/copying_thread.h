// Whether a thread of another process may be in a copy at this moment, from proc(5).
#pragma once

#include <sys/types.h>

namespace rdmaemu::runtime {

// Returns false if the thread has ended, is stopped by a signal, or waits in another system call
// than process_vm_readv and process_vm_writev. Returns true if this is unknown: for a thread that
// runs, and for one that a tracer stopped at one of these calls. `thread` is as gettid(2) gives it.
bool MayCopy(pid_t thread);

}  // namespace rdmaemu::runtime
