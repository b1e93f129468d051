// Copies between shared memory and buffers of the program. The buffers may be unmapped, which must
// not crash the program. The library therefore checks each page by a system call that returns
// EFAULT instead of faulting. The library trusts the result for a short time.
//
// A child of _Fork(3) or clone(2) shares its parent's connection, so the buffers are its parent's.
//
// The library accesses memory by address only through this file, guarded_copy.h and region_check.h.
// The simulator links the rest of the library with its own memory (tests/sim/library_seams.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmaemu::shim {

// The stored results of page checks for one queue. All zero at first. Not thread-safe: it is used
// under the queue's lock.
class ProgramMemory {
 public:
  // Call this once in each library call, before the functions below.
  void Begin();
  // The time of the last Begin (CLOCK_MONOTONIC of the machine).
  uint64_t now_ns() const { return now_ns_; }
  // Returns false if the bytes cannot be read, or are another process's. `to` may then hold some of
  // them. The host can read them.
  bool Read(void* to, uint64_t address, size_t bytes);
  // Returns false if the bytes cannot be written. Some may have been written. A child writes to its
  // parent's memory, or to its own where the system denies it the parent's (Yama).
  bool Write(uint64_t address, const void* from, size_t bytes);

 private:
  static constexpr size_t kPages = 32;
  // How long a check is trusted, in ns. A message takes a fraction of this time. A program that
  // unmaps memory under a device by mistake takes far longer.
  static constexpr uint64_t kBelievedFor_ns = 100'000;
  struct Page {
    uintptr_t address;  // 0: none
    uint64_t until_ns;  // CLOCK_MONOTONIC
  };

  // Returns the entry for a page, by the lowest bits of the page number.
  Page& Entry(uintptr_t page);

  Page pages_[kPages];
  uint64_t now_ns_;
};

}  // namespace rdmaemu::shim
