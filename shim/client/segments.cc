#include "shim/client/segments.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "shim/client/system.h"

namespace rdmaemu::client {

int MapFile(uint32_t id, const MapSegmentOut& answer, int fd, MappedSegment& out) {
  struct stat status;
  // An access beyond the file's end would raise SIGBUS.
  const bool whole = SysFileStatus(fd, &status) == 0 && answer.length > 0 &&
                     static_cast<uint64_t>(status.st_size) >= answer.length;
  void* bytes = whole ? SysMapShared(fd, answer.length) : MAP_FAILED;
  const int failure = whole ? errno : EPROTO;
  SysClose(fd);
  if (bytes == MAP_FAILED) return failure;
  // A core file would otherwise touch, and allocate, every page of every queue.
  madvise(bytes, answer.length, MADV_DONTDUMP);
  out = {id, answer.length, static_cast<std::byte*>(bytes)};
  return 0;
}

SendLane* MapLane(int fd) {
  MappedSegment mapped{};
  if (MapFile(0, {sizeof(SendLane)}, fd, mapped) != 0) return nullptr;
  return reinterpret_cast<SendLane*>(mapped.bytes);
}

void UnmapLane(SendLane* lane) { munmap(lane, sizeof *lane); }

std::byte* Place(const SharedSpan& span, const MappedSegment& segment) {
  if (uint64_t{span.offset} + span.length > segment.length) {
    errno = EPROTO;
    return nullptr;
  }
  return segment.bytes + span.offset;
}

bool Segments::Add(const MappedSegment& segment) {
  if (count_ == room_) {
    const size_t room = room_ == 0 ? 16 : room_ * 2;
    if (room > kMaxSegments) return false;
    auto* grown = static_cast<MappedSegment*>(realloc(all_, room * sizeof(MappedSegment)));
    if (grown == nullptr) return false;
    all_ = grown;
    room_ = room;
  }
  all_[count_++] = segment;
  return true;
}

std::byte* Segments::Find(const SharedSpan& span, bool& known) const {
  // A new queue is usually in the newest segment.
  for (size_t i = count_; i-- > 0;) {
    if (all_[i].id != span.segment) continue;
    known = true;
    return Place(span, all_[i]);
  }
  known = false;
  return nullptr;
}

void Segments::UnmapAll() {
  for (size_t i = 0; i < count_; i++) munmap(all_[i].bytes, all_[i].length);
  count_ = 0;
}

}  // namespace rdmaemu::client
