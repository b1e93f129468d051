// Copies between shared memory and buffers that the program named, which may not be there any more:
// a device must not make the program crash for that. A page is asked for by a system call that
// answers EFAULT instead of faulting; for a moment the answer is believed.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace rdmaemu::shim
