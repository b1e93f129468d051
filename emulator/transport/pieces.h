// A payload in program memory: an ordered list of memory ranges of one process. The ranges are of
// several processes when forked processes registered the parts of a scatter list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

class Pieces {
 public:
  void Clear() {
    process_ = ProcessId::kNone;
    length_ = 0;
    count_ = 0;
    heap_.clear();
    owners_.clear();
  }
  // An empty range adds nothing.
  void Add(const MemoryRef& ref) {
    if (count_ != 0 || ref.range.length == 0) return AddMore(ref);
    process_ = ref.process;
    inline_[0].address = ref.range.address;
    inline_[0].length = length_ = ref.range.length;
    count_ = 1;
  }
  uint64_t length() const { return length_; }
  bool empty() const { return length_ == 0; }
  void DropFront(uint64_t bytes);
  void Truncate(uint64_t bytes);

  // All return EFAULT when a byte is unmapped, and ESRCH when a process has ended. In a copy both
  // payloads must have the same length.
  Status Read(Memory& memory, std::span<std::byte> to) const;
  Status ReadParts(Memory& memory, std::span<const std::span<std::byte>> to) const;
  Status WriteParts(Memory& memory, std::span<const std::span<const std::byte>> from) const;
  Status Write(Memory& memory, std::span<const std::byte> from) const;
  Status CopyTo(Memory& memory, const Pieces& to) const;
  bool Reachable(Memory& memory, bool write) const;
  // Returns true when each range begins at its SGE's address. Addresses and keys then name the same
  // bytes.
  bool IsAt(std::span<const rxe_sge> sges) const;
  // Returns the process of the first range.
  ProcessId process() const { return process_; }
  // Returns true when all ranges are memory of this process.
  bool IsOf(ProcessId process) const { return !mixed() && process_ == process; }
  std::span<const MemoryRange> ranges() const {
    return heap_.empty() ? std::span<const MemoryRange>(inline_.data(), count_)
                         : std::span<const MemoryRange>(heap_);
  }

 private:
  static constexpr size_t kInline = 4;  // further ranges are on the heap

  void AddMore(const MemoryRef& ref);
  bool mixed() const { return !owners_.empty(); }
  ProcessId owner(size_t index) const { return mixed() ? owners_[index] : process_; }
  Status CopyPiecewise(Memory& memory, const Pieces& to) const;

  ProcessId process_ = ProcessId::kNone;
  uint64_t length_ = 0;
  size_t count_ = 0;
  std::array<MemoryRange, kInline> inline_;
  std::vector<MemoryRange> heap_;  // all ranges when there are more than kInline
  std::vector<ProcessId> owners_;  // one per range; empty while all are process_'s
};

}  // namespace rdmaemu::transport
