// Copies between shared memory and buffers that the program named, which may not be there any more:
// a device must not make the program crash for that. A page is asked for by a system call that
// answers EFAULT instead of faulting; for a moment the answer is believed.
//
// The library reaches memory by address through this file and region_check.h alone. The simulator
// links the rest of the library with memory of its own (tests/sim/library_seams.cc).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmaemu::shim {

// All zero at first. Not thread-safe: it belongs to a queue and is used under the queue's lock.
class ProgramMemory {
 public:
  // Once before the calls below, by each library call.
  void Begin();
  // False when the bytes cannot be read; `to` may hold some of them then.
  bool Read(void* to, uint64_t address, size_t bytes);
  // False when they cannot be written; some may have been.
  bool Write(uint64_t address, const void* from, size_t bytes);

 private:
  static constexpr size_t kPages = 32;
  // A message takes a fraction of it, a person who takes memory away from under a device far more.
  static constexpr uint64_t kBelievedFor_ns = 100'000;
  struct Page {
    uintptr_t address;  // 0: none
    uint64_t until_ns;  // CLOCK_MONOTONIC
  };

  // By the lowest bits of the page number.
  Page& Entry(uintptr_t page);

  Page pages_[kPages];
  uint64_t now_ns_;
};

// Copies between this process and the process `pid`: from `other` to `own` when `pull` is true,
// else from `own` to `other`. Returns the bytes copied, or -1 and errno, as process_vm_readv(2)
// does. Thread-safe.
ssize_t CopyWithProcess(pid_t pid, bool pull, std::span<const iovec> own,
                        std::span<const iovec> other);

}  // namespace rdmaemu::shim
