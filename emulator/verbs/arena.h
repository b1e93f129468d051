// Memory that a host shares with one group of processes: 64-byte aligned stretches cut from a few
// large segments, so that a queue costs no descriptor and a program maps little.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "emulator/abi/ring.h"
#include "emulator/base/memory.h"
#include "emulator/base/result.h"

namespace rdmaemu {

// A stretch of a shared segment, with where the host has it.
struct Span {
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0;         // bytes
  uint32_t length = 0;         // bytes; 0: none
  std::byte* bytes = nullptr;  // in the host's mapping

  operator SharedSpan() const { return {static_cast<uint32_t>(segment), offset, length, 0}; }
};

class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kSegmentBytes = size_t{1} << 20;
  // A group that has much gets more at a time, so that its mappings and the host's descriptors stay
  // few; pages that nobody touched cost nothing.
  static constexpr size_t kMaxGrowthBytes = size_t{256} << 20;
  // An empty segment of at most this is kept for the next queue: programs never unmap what they
  // were shown once, so one that makes and destroys a queue in turn must not get a new one each.
  static constexpr size_t kMaxSpareBytes = size_t{32} << 20;
  static constexpr size_t kPageBytes = 4096;
  // What one group may hold, as addresses: as many queue pairs as it has doorbells, each with
  // queues of some thousand entries; or two hundred of the deepest queue pairs (4.5 GiB each on
  // rxe).
  static constexpr size_t kMaxBytes = size_t{1} << 40;
  // Offsets are 32 bits. The deepest send queue of rxe takes 2.5 GiB.
  static constexpr size_t kMaxSpanBytes = (size_t{4} << 30) - kPageBytes;
  // A freed stretch of at least this many bytes gives its pages back: a program maps a segment
  // until it ends, and would keep them. A shorter one is zeroed when it is handed out again.
  static constexpr size_t kDiscardBytes = size_t{256} << 10;

  explicit Arena(SharedMemory& memory) : memory_(memory) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A zeroed stretch of at least `bytes`. ENOMEM above the limits or when the system has no more.
  Result<Span> Allocate(size_t bytes);
  // The span must have come from Allocate. An empty one is ignored.
  void Free(const Span& span);
  // Bytes of one of this group's segments; EINVAL for any other.
  Result<uint64_t> SegmentLength(SegmentId segment) const;
  size_t total_bytes() const { return total_bytes_; }

 private:
  struct Shared {
    std::span<std::byte> bytes;
    std::map<uint32_t, uint32_t> free;  // offset to length; neighbours are merged
    uint32_t touched = 0;               // bytes beyond were never handed out and still are zero
  };
  // By length, so that the smallest hole that is large enough is found at once.
  struct Hole {
    uint32_t length;
    SegmentId segment;
    uint32_t offset;
    auto operator<=>(const Hole&) const = default;
  };
  Span Take(SegmentId id, uint32_t offset, uint32_t bytes);
  void AddHole(SegmentId id, Shared& segment, uint32_t offset, uint32_t length);
  void RemoveHole(SegmentId id, Shared& segment, uint32_t offset);
  void Emptied(SegmentId id);
  void Destroy(SegmentId id);

  SharedMemory& memory_;
  std::map<SegmentId, Shared> segments_;
  std::set<Hole> holes_;
  SegmentId spare_ = SegmentId::kNone;  // an empty segment
  size_t total_bytes_ = 0;
};

}  // namespace rdmaemu
