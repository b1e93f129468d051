#include "emulator/verbs/arena.h"

#include <algorithm>
#include <cstring>

namespace rdmaemu {
namespace {

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Arena::~Arena() {
  for (const auto& [id, segment] : segments_) memory_.DestroySegment(id);
}

Result<Span> Arena::Allocate(size_t bytes) {
  if (bytes == 0) return Span{};
  if (bytes > kMaxSpanBytes) return Fail(ENOMEM);
  const auto rounded = static_cast<uint32_t>(RoundUp(bytes, kAlignment));
  for (auto& [id, segment] : segments_) {
    for (auto hole = segment.free.begin(); hole != segment.free.end(); ++hole) {
      if (hole->second >= rounded) return Take(id, segment, hole, rounded);
    }
  }
  const size_t segment_bytes = std::max(kSegmentBytes, RoundUp(rounded, kPageBytes));
  if (total_bytes_ + segment_bytes > kMaxBytes) return Fail(ENOMEM);
  const Result<Segment> created = memory_.CreateSegment(segment_bytes);
  if (!created) return tl::make_unexpected(created.error());
  total_bytes_ += segment_bytes;
  Shared& segment = segments_[created->id];
  segment.bytes = created->bytes;
  segment.free[0] = static_cast<uint32_t>(segment_bytes);
  return Take(created->id, segment, segment.free.begin(), rounded);
}

Span Arena::Take(SegmentId id, Shared& segment, std::map<uint32_t, uint32_t>::iterator hole,
                 uint32_t bytes) {
  const auto [offset, length] = *hole;
  segment.free.erase(hole);
  if (length > bytes) segment.free[offset + bytes] = length - bytes;
  std::byte* memory = segment.bytes.data() + offset;
  if (offset < segment.touched) {
    std::memset(memory, 0, std::min(bytes, segment.touched - offset));
  }
  segment.touched = std::max(segment.touched, offset + bytes);
  return {id, offset, bytes, memory};
}

void Arena::Free(const Span& span) {
  if (span.length == 0) return;
  const auto found = segments_.find(span.segment);
  if (found == segments_.end()) return;
  auto& free = found->second.free;
  auto hole = free.emplace(span.offset, span.length).first;
  if (const auto next = std::next(hole);
      next != free.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free.erase(next);
  }
  if (hole != free.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      free.erase(hole);
      hole = before;
    }
  }
  // A large segment that is empty goes back to the system; a small one is kept for the next queue.
  const size_t segment_bytes = found->second.bytes.size();
  if (segment_bytes > kSegmentBytes && hole->second == segment_bytes) {
    total_bytes_ -= segment_bytes;
    memory_.DestroySegment(found->first);
    segments_.erase(found);
  }
}

Result<uint64_t> Arena::SegmentLength(SegmentId segment) const {
  const auto found = segments_.find(segment);
  if (found == segments_.end()) return Fail(EINVAL);
  return found->second.bytes.size();
}

}  // namespace rdmaemu
