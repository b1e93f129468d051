// ThreadSanitizer sees a program's memory accesses, but not the locks of this library or the order
// that a device gives: what a thread posts happens before its completion is polled. The functions
// below tell it, when the program was built with -fsanitize=thread (tsan_interface.h).
#pragma once

extern "C" {
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
}

namespace rdmaemu::client {

// What the thread does next happens after all that threads did before ReleaseTo of this address.
inline void AcquireFrom(const void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(address));
}
inline void ReleaseTo(const void* address) {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(address));
}

// The device as one place: posting and calls release to it, completions and answers acquire from
// it. It cannot be split by queue: a message orders threads that share no queue.
extern const char g_device_order;
inline void AcquireFromDevice() { AcquireFrom(&g_device_order); }
inline void ReleaseToDevice() { ReleaseTo(&g_device_order); }

}  // namespace rdmaemu::client
