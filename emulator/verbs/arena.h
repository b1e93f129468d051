// Memory that a host shares with one group of processes. An arena allocates 64-byte aligned spans
// from a few large segments. A queue therefore needs no file descriptor of its own, and a program
// maps few segments.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>

#include "emulator/abi/ring.h"
#include "emulator/base/memory.h"
#include "emulator/base/result.h"
#include "emulator/base/spare_nodes.h"

namespace rdmaemu {

// A part of a shared segment, and its place in the host's mapping.
struct Span {
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0;         // bytes
  uint32_t length = 0;         // bytes; 0: none
  std::byte* bytes = nullptr;  // in the host's mapping
  uint32_t number = 0;         // differs from the arena's earlier spans; not 0

  operator SharedSpan() const { return {static_cast<uint32_t>(segment), offset, length, 0}; }
};

class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kSegmentBytes = size_t{1} << 20;
  // The size of a new segment grows with the group's memory, up to this limit. A group therefore
  // needs few mappings, and the host few descriptors. Untouched pages cost no memory.
  static constexpr size_t kMaxGrowthBytes = size_t{256} << 20;
  // The arena keeps one empty segment of at most this size for the next queue, because programs
  // never unmap a segment. Without this spare segment, a program that alternately creates and
  // destroys a queue would map a new segment each time.
  static constexpr size_t kMaxSpareBytes = size_t{32} << 20;
  static constexpr size_t kPageBytes = 4096;
  // The most address space that one group may hold. This space suffices for a queue pair at each
  // doorbell, with queues of some thousand entries each. It also suffices for two hundred of the
  // deepest queue pairs (4 GiB each on rxe).
  static constexpr size_t kMaxBytes = size_t{1} << 40;
  // Offsets have 32 bits. The deepest queues of rxe take 2 GiB.
  static constexpr size_t kMaxSpanBytes = (size_t{4} << 30) - kPageBytes;
  // Freeing a span of at least this many bytes returns its pages to the system, because programs
  // keep segments mapped until they end. A shorter span is zeroed when it is allocated again.
  static constexpr size_t kDiscardBytes = size_t{256} << 10;
  // While several processes share the arena, one of them may be interrupted within an access to a
  // queue that another one destroys. So this many bytes that were freed last are not allocated
  // again.
  static constexpr size_t kMostKeptBytes = size_t{64} << 20;

  explicit Arena(SharedMemory& memory) : memory_(memory) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns a span of at least `bytes`, of which the first `zeroed` ones are 0. The rest may hold
  // what the group's earlier queues left. ENOMEM above the limits, or when the system has no
  // memory.
  Result<Span> Allocate(size_t bytes, size_t zeroed = kMaxSpanBytes);
  // Frees a span that Allocate returned. An empty span is ignored.
  void Free(const Span& span);
  // Tells whether several processes use the spans. At first none does.
  void SetShared(bool is_shared);
  // Returns the length in bytes of one of this group's segments. EINVAL for any other segment.
  Result<uint64_t> SegmentLength(SegmentId segment) const;
  size_t total_bytes() const { return total_bytes_; }

 private:
  struct Shared {
    std::span<std::byte> bytes;
    std::map<uint32_t, uint32_t> free;  // offset to length; neighbours are merged
    uint32_t touched = 0;               // bytes beyond were never allocated and still are zero
  };
  // Ordered by length. This order makes the search for the smallest sufficient hole fast.
  struct Hole {
    uint32_t length;
    SegmentId segment;
    uint32_t offset;
    auto operator<=>(const Hole&) const = default;
  };
  void Release(const Span& span);
  void ReleaseOldest(size_t most_kept_bytes);
  Span Take(SegmentId id, uint32_t offset, uint32_t bytes, size_t zeroed);
  uint32_t NextNumber();
  void AddHole(SegmentId id, Shared& segment, uint32_t offset, uint32_t length);
  void RemoveHole(SegmentId id, Shared& segment, uint32_t offset);
  void Emptied(SegmentId id);
  void Destroy(SegmentId id);

  SharedMemory& memory_;
  std::map<SegmentId, Shared> segments_;
  SpareNodes<std::map<uint32_t, uint32_t>> spare_free_;
  SpareNodes<std::set<Hole>> spare_holes_;
  std::set<Hole> holes_;
  SegmentId spare_ = SegmentId::kNone;  // an empty segment
  size_t total_bytes_ = 0;
  bool is_shared_ = false;
  std::deque<Span> kept_;  // freed, the oldest first
  size_t kept_bytes_ = 0;
  uint32_t last_number_ = 0;
};

}  // namespace rdmaemu
