// The memory that this process shares with its host: each segment is mapped once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/abi/calls.h"

namespace rdmaemu::client {

struct MappedSegment {
  uint32_t id;
  uint64_t length;
  std::byte* bytes;
};

// Maps what a host answered to kMapSegment, and closes the descriptor. An errno; EPROTO when the
// file is shorter than it says.
int MapFile(uint32_t id, const MapSegmentOut& answer, int fd, MappedSegment& out);

// Where the span is; nullptr and EPROTO when it is not within the segment.
std::byte* Place(const SharedSpan& span, const MappedSegment& segment);

// Those that are mapped. Not thread-safe.
class Segments {
 public:
  static constexpr size_t kMaxSegments = 65536;

  bool Add(const MappedSegment& segment);  // false: there is no room
  // As Place; `known` is false when its segment has not been mapped yet.
  std::byte* Find(const SharedSpan& span, bool& known) const;
  void UnmapAll();

 private:
  MappedSegment* all_ = nullptr;
  size_t count_ = 0, room_ = 0;
};

}  // namespace rdmaemu::client
