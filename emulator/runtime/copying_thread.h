// Whether a thread of another process may be in a copy at this moment, from proc(5).
#pragma once

#include <sys/types.h>

#include "emulator/base/memory.h"

namespace rdmaemu::runtime {

// Returns kElsewhere if the thread has ended, is stopped by a signal or a freezer, or waits in
// another system call than process_vm_readv and process_vm_writev. Returns kTraced if a tracer
// stopped it at the entry or the exit of one of these calls. /proc shows no difference between
// both. `thread` is as gettid(2) gives it.
CopyState CopyStateOf(pid_t thread);

}  // namespace rdmaemu::runtime
