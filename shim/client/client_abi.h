// The one connection of a process to its host, as C functions: exported by libibverbs.so.1 in the
// version node RDMAEMU_PRIVATE for librdmacm.so.1, which has no connection of its own.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Does one call of emulator/host/calls.h, connecting (and starting the host) first where needed,
// and once more in a forked child. `out` takes at most out_size bytes; *out_filled (may be NULL)
// says how many came. `descriptors` (may be NULL) takes exactly descriptor_count descriptors, all
// close-on-exec, owned by the caller. Thread-safe; not a cancellation point; restarts on EINTR.
// Returns 0 or a positive errno: the host's, or EIO when the host is gone, ENODEV when none could
// be reached (the reason has then been printed to stderr once).
int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);

// Takes one from an event counter's descriptor: blocks unless the descriptor is O_NONBLOCK.
// Returns 0, EAGAIN, EINTR (as read(2) would), or EIO when the host is gone.
int rdmaemu_client_wait(int counter_fd);

// Adds one back to a counter (a count taken for an event that another thread got).
void rdmaemu_client_put_back(int counter_fd);

// True when this process was forked from the one that made the call that returned `owner_pid`'s
// objects: librdmacm refuses those with EACCES, as the kernel does.
int rdmaemu_client_is_forked_from(uint32_t owner_pid);

#ifdef __cplusplus
}
#endif
