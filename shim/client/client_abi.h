// A process's one connection to its host, as C functions. libibverbs.so.1 exports them in the
// version node RDMAEMU_PRIVATE for librdmacm.so.1, which has no separate connection.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Makes one call of emulator/abi/calls.h. Connects first if needed, which may start the host, and
// connects again in a forked child. `out` gets at most out_size bytes, and *out_filled (may be
// NULL) their number. `descriptors` (may be NULL) gets exactly descriptor_count descriptors, all
// close-on-exec and owned by the caller. Thread-safe, not a cancellation point, restarts on EINTR.
// Returns 0 or a positive errno: the host's, EIO if the host has ended, or ENODEV if no host could
// be reached. The reason for ENODEV is printed to stderr once.
int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);

// Announces calls of this thread (announcement.h), which the next call of that kind sends. Ends
// with rdmaemu_client_end_announcement, before which `announced` must not be destroyed. Both are
// cheap. Announcements nest.
struct rdmaemu_announcement;
void rdmaemu_client_announce(struct rdmaemu_announcement* announced);
void rdmaemu_client_end_announcement(struct rdmaemu_announcement* announced);

// Takes one from an event counter's descriptor. Blocks unless the descriptor is O_NONBLOCK. Returns
// 0, EAGAIN, EINTR (as read(2) would), EIO if the host has ended, or EBADF if the descriptor number
// now belongs to another file.
int rdmaemu_client_wait(int counter_fd);

// Returns 1 if the process's host has ended.
int rdmaemu_client_host_is_gone(void);

// Adds one to a counter again. Call this if another thread fetched the event of this count.
void rdmaemu_client_put_back(int counter_fd);

// Closes a counter's descriptor. Does nothing if the program has closed it and uses its number for
// another file.
void rdmaemu_client_close_counter(int counter_fd);

// Returns 1 if this process was forked from the process `owner_pid`, which made the call that
// created the objects. librdmacm refuses such objects with EACCES, as the kernel does.
int rdmaemu_client_is_forked_from(uint32_t owner_pid);

// The functions of a host inside this process (librdmaemu.so), which replaces a connection. Any
// thread may call them at any time. After the host was closed they return EIO.
struct rdmaemu_embedded_host {
  // Works as rdmaemu_client_call.
  int (*call)(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
              uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  // Call this after ringing a doorbell.
  void (*ring)(void);
  // Works as rdmaemu_client_wait. The caller runs the host until the counter is raised.
  int (*wait)(int counter_fd);
  // Call this after a poll that found no completion, so that the host can do work.
  void (*idle)(void);
};

// Makes `host` (static) this process's host. NULL means that the host was closed: calls return EIO
// until there is another host. Objects of one host are invalid for the next. Returns 0 or a
// positive errno. EBUSY: the process is a client of a host already.
int rdmaemu_client_embed(const struct rdmaemu_embedded_host* host);

// Sends a Hello to the host with this number (IdSpace), which was added to those inside this
// process. The calling thread is on that host. Returns 0 or a positive errno.
int rdmaemu_client_join(uint32_t number);
// Records that one of the hosts inside this process has ended. Takes no lock.
void rdmaemu_client_host_ended(uint32_t number);

// Works as ibv_get_device_list(3), for the host that has or had the device with this index. This
// may be another host inside this process than the calling thread's host.
struct ibv_device;
struct ibv_device** rdmaemu_client_devices_beside(uint32_t index, int* count);

// Returns a number that changes with each rdmaemu_client_embed. State that was stored under another
// number belongs to an older host and is invalid.
uint32_t rdmaemu_client_host_generation(void);

#ifdef __cplusplus
}
#endif
