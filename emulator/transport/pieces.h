// A payload that is still where the program has it: ranges of the memory of one process (or, where
// forked processes registered the parts of a scatter list, of several), in order.
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
  void Clear();
  // An empty range adds nothing.
  void Add(const MemoryRef& ref);
  uint64_t length() const { return length_; }
  bool empty() const { return length_ == 0; }
  void DropFront(uint64_t bytes);
  void Truncate(uint64_t bytes);

  // All answer EFAULT when a byte was out of reach. The payloads must be of the same length.
  Status Read(Memory& memory, std::span<std::byte> to) const;
  Status ReadParts(Memory& memory, std::span<const std::span<std::byte>> to) const;
  Status WriteParts(Memory& memory, std::span<const std::span<const std::byte>> from) const;
  Status Write(Memory& memory, std::span<const std::byte> from) const;
  Status CopyTo(Memory& memory, const Pieces& to) const;
  bool Reachable(Memory& memory, bool write) const;
  // True when the first ranges begin where the SGEs do: addresses and keys name the same bytes.
  bool IsAt(std::span<const rxe_sge> sges) const;
  // Whose memory the first range is.
  ProcessId process() const { return process_; }
  // True when all is memory of this process.
  bool IsOf(ProcessId process) const { return !mixed() && process_ == process; }
  std::span<const MemoryRange> ranges() const {
    return heap_.empty() ? std::span<const MemoryRange>(inline_.data(), count_)
                         : std::span<const MemoryRange>(heap_);
  }

 private:
  static constexpr size_t kInline = 4;  // more ranges than this go to the heap

  bool mixed() const { return !owners_.empty(); }
  ProcessId owner(size_t index) const { return mixed() ? owners_[index] : process_; }
  Status CopyPiecewise(Memory& memory, const Pieces& to) const;

  ProcessId process_ = ProcessId::kNone;
  uint64_t length_ = 0;
  size_t count_ = 0;
  std::array<MemoryRange, kInline> inline_;
  std::vector<MemoryRange> heap_;  // holds all of them once there are more than kInline
  std::vector<ProcessId> owners_;  // one a range; empty while all are process_'s
};

}  // namespace rdmaemu::transport
