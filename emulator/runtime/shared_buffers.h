// The host's side of the memory that a process shares with it (emulator/abi/buffer_arena.h). The
// arena is hostile memory: the process can write any of its bytes at any time, but the memfd's
// seals prevent that it removes pages.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/abi/buffer_arena.h"
#include "emulator/base/memory.h"
#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class SharedBuffers {
 public:
  // The host waits this long, once per process, for a process that changes its mappings.
  static constexpr std::chrono::seconds kLongestWait{1};

  // `address` is the arena's address in the process. `bytes` is the host's mapping, and must be
  // BufferArena::kBytes long and exist as long as this object.
  SharedBuffers(uint64_t address, std::span<std::byte> bytes);

  // Returns true if every byte is in a granule that the process shares. Ranges may be of any
  // address and length.
  bool Hold(std::span<const iovec> ranges) const;
  // Returns true if some byte is in such a granule.
  bool Touch(std::span<const MemoryRange> ranges) const;
  // Returns the host's address of an address that Hold accepted.
  void* At(const void* address) const;
  uint32_t ordinary_buffers() const;

  // Excludes changes of the process's mappings. An access to the process's memory needs one, also
  // by a system call. Accesses may nest.
  class Access {
   public:
    explicit Access(SharedBuffers* buffers);  // nullptr: the process shares nothing
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    // Returns true if the process has changed its mappings since, because it did not wait. Repeat
    // the access then. An access within another one always returns false.
    bool WasInVain() const;

   private:
    SharedBuffers* buffers_;
    bool is_outermost_ = false;
    uint32_t changes_ = 0;
  };
  // False: the process did not end a change in time. The host then uses system calls alone.
  bool usable() const { return usable_; }

 private:
  uint32_t Changes() const;
  void SetCopies(uint32_t copies);
  // Waits until the process has ended its change.
  void AwaitChange();

  BufferArena& arena_;
  uint64_t address_;
  std::byte* bytes_;
  uint32_t depth_ = 0;
  bool usable_ = true;
};

// Copies between two lists of vectors, whose totals must be equal (else EFAULT). The last bytes of
// a vector become visible last, and an aligned number of 2, 4 or 8 bytes at once: programs poll for
// them, as they may on hardware.
Status CopyVectors(std::span<const iovec> to, std::span<const iovec> from);

}  // namespace rdmaemu::runtime
