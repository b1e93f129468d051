// Copies that a host can prevent until the kernel makes them. The kernel restarts the check below
// when it interrupts the thread between the check and the system call (rseq(2)). So a thread that
// was stopped there checks again when it continues.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace rdmaemu::shim {

// A copy is made only while `*word` has the value `expected`. Another process writes `*word`.
struct CopyGuard {
  const uint32_t* word;
  uint32_t expected;
};

// Returns true if the calling thread can make guarded copies: on x86-64, if the C library has
// registered the thread with rseq (glibc 2.35 or newer, and not under Valgrind). Thread-safe.
bool CanCopyGuarded();

// Returns the calling thread, as its host sees it (gettid). Thread-safe.
uint32_t CopyingThread();

// Copies between this process and the process `pid`: from `other` to `own` when `pull` is true,
// else from `own` to `other`. Returns the bytes copied, or -1 and errno, as process_vm_readv(2)
// does. Fails with ECANCELED if the guard does not permit the copy. Call this only when
// CanCopyGuarded. Thread-safe.
ssize_t CopyGuarded(const CopyGuard& guard, pid_t pid, bool pull, std::span<const iovec> own,
                    std::span<const iovec> other);

}  // namespace rdmaemu::shim
