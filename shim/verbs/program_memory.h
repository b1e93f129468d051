// Copies between shared memory and buffers that the program named, which may not be there any more:
// a device must not make the program crash for that. A page is asked for by a system call that
// answers EFAULT instead of faulting, once for each library call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmaemu::shim {

class ProgramMemory {
 public:
  // False when the bytes cannot be read; `to` may hold some of them then.
  bool Read(void* to, uint64_t address, size_t bytes);
  // False when they cannot be written; some may have been.
  bool Write(uint64_t address, const void* from, size_t bytes);

 private:
  static constexpr size_t kPages = 8;
  // Page addresses that were found readable (writable) since this object was made, by their lowest
  // bits; 0 is no page.
  uintptr_t readable_[kPages] = {};
  uintptr_t writable_[kPages] = {};
};

}  // namespace rdmaemu::shim
