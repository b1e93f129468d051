// The one connection of a process to its host, as C functions: exported by libibverbs.so.1 in the
// version node RDMAEMU_PRIVATE for librdmacm.so.1, which has no connection of its own.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Does one call of emulator/abi/calls.h, connecting (and starting the host) first where needed,
// and once more in a forked child. `out` takes at most out_size bytes; *out_filled (may be NULL)
// says how many came. `descriptors` (may be NULL) takes exactly descriptor_count descriptors, all
// close-on-exec, owned by the caller. Thread-safe; not a cancellation point; restarts on EINTR.
// Returns 0 or a positive errno: the host's, or EIO when the host is gone, ENODEV when none could
// be reached (the reason has then been printed to stderr once).
int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);

// Takes one from an event counter's descriptor: blocks unless the descriptor is O_NONBLOCK.
// Returns 0, EAGAIN, EINTR (as read(2) would), EIO when the host is gone, or EBADF when the number
// is another file's by now.
int rdmaemu_client_wait(int counter_fd);

// Adds one back to a counter (a count taken for an event that another thread got).
void rdmaemu_client_put_back(int counter_fd);

// Closes a counter's descriptor, unless the program has closed it and uses its number for another
// file.
void rdmaemu_client_close_counter(int counter_fd);

// True when this process was forked from the one that made the call that returned `owner_pid`'s
// objects: librdmacm refuses those with EACCES, as the kernel does.
int rdmaemu_client_is_forked_from(uint32_t owner_pid);

// A host inside this process (librdmaemu.so): what a connection is used for, as functions. They may
// be called by any thread at any time, also when the host has been closed: then they answer EIO.
struct rdmaemu_embedded_host {
  // As rdmaemu_client_call.
  int (*call)(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
              uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  // A doorbell was rung.
  void (*ring)(void);
  // As rdmaemu_client_wait; the caller drives the host until its counter is raised.
  int (*wait)(int counter_fd);
  // A program looked for completions and found none: the host may use the moment.
  void (*idle)(void);
};

// From now on this process's host is `host` (static; NULL: it was closed, and calls answer EIO
// until there is another). Objects of one host mean nothing to the next. 0, or a positive errno:
// EBUSY when the process is a client of a host already.
int rdmaemu_client_embed(const struct rdmaemu_embedded_host* host);

// A host was added to those inside this process, by its number (IdSpace), and the calling thread is
// on it: greets it. 0 or a positive errno.
int rdmaemu_client_join(uint32_t number);
// One of the hosts inside this process has ended. Takes no lock.
void rdmaemu_client_host_ended(uint32_t number);

// As ibv_get_device_list, of the host that has or had the device with this index; of one host
// inside this process, whichever the thread is on.
struct ibv_device;
struct ibv_device** rdmaemu_client_devices_beside(uint32_t index, int* count);

// Another number after each rdmaemu_client_embed: what a library kept of a host is of that host.
uint32_t rdmaemu_client_host_generation(void);

#ifdef __cplusplus
}
#endif
