// Fork: the shim's queues are shared mappings and its locks survive, so that nothing has to be
// prepared; programs ask all the same.

#include "shim/verbs/objects.h"

RDMAEMU_EXPORT int ibv_fork_init() { return 0; }
RDMAEMU_EXPORT ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
// madvise of ranges: pages are reached through the process, never pinned.
RDMAEMU_EXPORT int ibv_dontfork_range(void*, size_t) { return 0; }
RDMAEMU_EXPORT int ibv_dofork_range(void*, size_t) { return 0; }
