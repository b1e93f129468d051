// Shared memory as memfds. They are sealed against shrinking, so that a client cannot take pages
// away under the host (that would be SIGBUS here), and against growing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "emulator/base/id_space.h"
#include "emulator/base/memory.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class MemfdSegments final : public SharedMemory {
 public:
  // Each takes a descriptor and a mapping (vm.max_map_count is 65530 by default).
  static constexpr size_t kMaxSegments = 32768;
  // All segments together, as addresses; pages that nobody touched cost nothing.
  static constexpr size_t kMaxTotalBytes = size_t{8} << 40;

  explicit MemfdSegments(IdSpace ids = {}) : ids_(ids) {}
  ~MemfdSegments() override;

  Result<Segment> CreateSegment(size_t bytes) override;
  void DestroySegment(SegmentId segment) override;
  void Discard(SegmentId segment, size_t offset, size_t length) override;
  // What is sent to a client that maps the segment; -1 when there is none of that id.
  int Descriptor(SegmentId segment) const;

 private:
  struct Mapped {
    UniqueFd fd;
    void* address;
    size_t bytes;
  };
  std::unordered_map<uint32_t, Mapped> segments_;
  size_t total_bytes_ = 0;
  const IdSpace ids_;
  uint32_t made_ = 0;
};

}  // namespace rdmaemu::runtime
