// Annotations for ThreadSanitizer (tsan_interface.h). ThreadSanitizer sees a program's memory
// accesses, but not this library's locks. ThreadSanitizer also misses the order that a device
// guarantees: a post happens before the poll of its completion. These functions do nothing unless
// the program was built with -fsanitize=thread.
#pragma once

extern "C" {
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
}

namespace rdmaemu::client {

// Orders the thread's next actions after all actions before a ReleaseTo of this address.
inline void AcquireFrom(const void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(address));
}
inline void ReleaseTo(const void* address) {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(address));
}

// The one address that represents the whole device. Posts and calls release to it. Completions and
// replies acquire from it. One address per queue is not enough, because a message orders threads
// that share no queue.
extern const char g_device_order;
inline void AcquireFromDevice() { AcquireFrom(&g_device_order); }
inline void ReleaseToDevice() { ReleaseTo(&g_device_order); }

}  // namespace rdmaemu::client
