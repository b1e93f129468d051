// The memory that this process shares with its host. Each segment is mapped once.
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

// Maps the file that a host returned for kMapSegment, and closes the descriptor. Returns 0 or an
// errno. EPROTO: the file is shorter than the reply says.
int MapFile(uint32_t id, const MapSegmentOut& answer, int fd, MappedSegment& out);

// Maps a lane (emulator/abi/send_lane.h), and closes the descriptor. Returns nullptr on failure.
SendLane* MapLane(int fd);
void UnmapLane(SendLane* lane);

// Returns the address of the span. Returns nullptr and EPROTO if it is not within the segment.
std::byte* Place(const SharedSpan& span, const MappedSegment& segment);

// The mapped segments. Not thread-safe.
class Segments {
 public:
  static constexpr size_t kMaxSegments = 65536;

  bool Add(const MappedSegment& segment);  // false: kMaxSegments reached or no memory
  // Works as Place. Sets `known` to false if the segment is not mapped yet.
  std::byte* Find(const SharedSpan& span, bool& known) const;
  void UnmapAll();

 private:
  MappedSegment* all_ = nullptr;
  size_t count_ = 0, room_ = 0;
};

}  // namespace rdmaemu::client
