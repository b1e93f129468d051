#include "emulator/verbs/arena.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

namespace rdmaemu {
namespace {

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Arena::~Arena() {
  for (const auto& [id, segment] : segments_) memory_.DestroySegment(id);
}

Result<Span> Arena::Allocate(size_t bytes, size_t zeroed) {
  if (bytes == 0) return Span{};
  if (bytes > kMaxSpanBytes) return Fail(ENOMEM);
  const auto rounded = static_cast<uint32_t>(RoundUp(bytes, kAlignment));
  if (const auto hole = holes_.lower_bound({rounded, SegmentId::kNone, 0}); hole != holes_.end()) {
    return Take(hole->segment, hole->offset, rounded, zeroed);
  }
  const size_t growth = std::clamp(std::bit_floor(total_bytes_), kSegmentBytes, kMaxGrowthBytes);
  const size_t segment_bytes = std::max(growth, RoundUp(rounded, kPageBytes));
  if (total_bytes_ + segment_bytes > kMaxBytes) return Fail(ENOMEM);
  const Result<Segment> created = memory_.CreateSegment(segment_bytes);
  if (!created) return tl::make_unexpected(created.error());
  total_bytes_ += segment_bytes;
  Shared& segment = segments_[created->id];
  segment.bytes = created->bytes;
  AddHole(created->id, segment, 0, static_cast<uint32_t>(segment_bytes));
  return Take(created->id, 0, rounded, zeroed);
}

void Arena::AddHole(SegmentId id, Shared& segment, uint32_t offset, uint32_t length) {
  spare_free_.Insert(segment.free, offset, length);
  spare_holes_.Insert(holes_, Hole{length, id, offset});
}

void Arena::RemoveHole(SegmentId id, Shared& segment, uint32_t offset) {
  const auto hole = segment.free.find(offset);
  spare_holes_.Erase(holes_, Hole{hole->second, id, offset});
  spare_free_.Erase(segment.free, hole);
}

Span Arena::Take(SegmentId id, uint32_t offset, uint32_t bytes, size_t zeroed) {
  if (id == spare_) spare_ = SegmentId::kNone;
  Shared& segment = segments_.at(id);
  const uint32_t length = segment.free.at(offset);
  RemoveHole(id, segment, offset);
  if (length > bytes) AddHole(id, segment, offset + bytes, length - bytes);
  std::byte* memory = segment.bytes.data() + offset;
  if (offset < segment.touched) {
    const uint32_t used = std::min(bytes, segment.touched - offset);
    if (used >= kDiscardBytes) {
      memory_.Discard(id, offset, used);
    } else {
      std::memset(memory, 0, std::min<size_t>(used, zeroed));
    }
  }
  segment.touched = std::max(segment.touched, offset + bytes);
  return {id, offset, bytes, memory, NextNumber()};
}

uint32_t Arena::NextNumber() {
  if (++last_number_ == 0) ++last_number_;
  return last_number_;
}

void Arena::Free(const Span& span) {
  if (span.length == 0) return;
  if (!is_shared_) return Release(span);
  if (span.length >= kDiscardBytes) memory_.Discard(span.segment, span.offset, span.length);
  kept_.push_back(span);
  kept_bytes_ += span.length;
  ReleaseOldest(kMostKeptBytes);
}

void Arena::SetShared(bool is_shared) {
  is_shared_ = is_shared;
  if (!is_shared) ReleaseOldest(0);
}

void Arena::ReleaseOldest(size_t most_kept_bytes) {
  while (kept_bytes_ > most_kept_bytes) {
    const Span oldest = kept_.front();
    kept_.pop_front();
    kept_bytes_ -= oldest.length;
    Release(oldest);
  }
}

void Arena::Release(const Span& span) {
  const auto found = segments_.find(span.segment);
  if (found == segments_.end()) return;
  Shared& segment = found->second;
  uint32_t offset = span.offset, length = span.length;
  if (length >= kDiscardBytes) memory_.Discard(span.segment, offset, length);
  if (const auto next = segment.free.find(offset + length); next != segment.free.end()) {
    length += next->second;
    RemoveHole(span.segment, segment, next->first);
  }
  if (const auto after = segment.free.lower_bound(offset); after != segment.free.begin()) {
    const auto [before, bytes] = *std::prev(after);
    if (before + bytes == offset) {
      offset = before;
      length += bytes;
      RemoveHole(span.segment, segment, before);
    }
  }
  AddHole(span.segment, segment, offset, length);
  if (length == segment.bytes.size()) Emptied(span.segment);
}

// Keeps the largest empty segment of at most kMaxSpareBytes.
void Arena::Emptied(SegmentId id) {
  const auto bytes_of = [&](SegmentId each) { return segments_.at(each).bytes.size(); };
  if (bytes_of(id) > kMaxSpareBytes) return Destroy(id);
  if (spare_ == SegmentId::kNone) {
    spare_ = id;
    return;
  }
  if (bytes_of(id) > bytes_of(spare_)) std::swap(id, spare_);
  Destroy(id);
}

void Arena::Destroy(SegmentId id) {
  const auto found = segments_.find(id);
  total_bytes_ -= found->second.bytes.size();
  RemoveHole(id, found->second, 0);
  memory_.DestroySegment(id);
  segments_.erase(found);
}

Result<uint64_t> Arena::SegmentLength(SegmentId segment) const {
  const auto found = segments_.find(segment);
  if (found == segments_.end()) return Fail(EINVAL);
  return found->second.bytes.size();
}

}  // namespace rdmaemu
