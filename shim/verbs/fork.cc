// Fork needs no preparation: the queues are shared mappings, and the locks survive fork. Programs
// call these functions anyway.

#include "shim/verbs/objects.h"

RDMAEMU_EXPORT int ibv_fork_init() { return 0; }
RDMAEMU_EXPORT ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
// No madvise(2) is needed, because the host accesses pages through the process and never pins them.
RDMAEMU_EXPORT int ibv_dontfork_range(void*, size_t) { return 0; }
RDMAEMU_EXPORT int ibv_dofork_range(void*, size_t) { return 0; }
