// Shared memory as memfds. They are sealed against shrinking, because a client that removed pages
// would cause SIGBUS in the host. They are also sealed against growing.
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
  // Each segment needs a descriptor and a mapping (vm.max_map_count is 65530 by default).
  static constexpr size_t kMaxSegments = 32768;
  // Limit for all segments together, in bytes of address space. Untouched pages use no memory.
  static constexpr size_t kMaxTotalBytes = size_t{8} << 40;

  explicit MemfdSegments(IdSpace ids = {}) : ids_(ids) {}
  ~MemfdSegments() override;

  Result<Segment> CreateSegment(size_t bytes) override;
  void DestroySegment(SegmentId segment) override;
  void Discard(SegmentId segment, size_t offset, size_t length) override;
  int Descriptor(SegmentId segment) const override;
  Result<Segment> AdoptSegment(int descriptor, size_t bytes) override;

 private:
  struct Mapped {
    UniqueFd fd;
    void* address;
    size_t bytes;
  };
  Result<Segment> Map(UniqueFd fd, size_t rounded);

  std::unordered_map<uint32_t, Mapped> segments_;
  size_t total_bytes_ = 0;
  const IdSpace ids_;
  uint32_t made_ = 0;
};

}  // namespace rdmaemu::runtime
