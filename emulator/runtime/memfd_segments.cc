#include "emulator/runtime/memfd_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>

namespace rdmaemu::runtime {
namespace {

size_t RoundToPages(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

MemfdSegments::~MemfdSegments() {
  for (auto& [id, mapped] : segments_) munmap(mapped.address, mapped.bytes);
}

Result<Segment> MemfdSegments::CreateSegment(size_t bytes) {
  if (bytes == 0 || bytes > kMaxTotalBytes) return Fail(ENOMEM);
  const size_t rounded = RoundToPages(bytes);
  if (segments_.size() >= kMaxSegments || rounded > kMaxTotalBytes - total_bytes_) {
    return Fail(ENOMEM);
  }
  UniqueFd fd(memfd_create("rdmaemu", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // ib_uverbs returns ENOMEM for a queue that it cannot allocate, whatever resource is missing.
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Fail(ENOMEM);
  }
  return Map(std::move(fd), rounded);
}

Result<Segment> MemfdSegments::AdoptSegment(int descriptor, size_t bytes) {
  UniqueFd fd(descriptor);
  const size_t rounded = RoundToPages(bytes);
  struct stat status;
  // Sealed memory, so that no access can fault.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != static_cast<off_t>(rounded) ||
      (fcntl(fd.get(), F_GET_SEALS) & kSeals) != kSeals) {
    return Fail(EINVAL);
  }
  if (segments_.size() >= kMaxSegments || rounded > kMaxTotalBytes - total_bytes_) {
    return Fail(ENOMEM);
  }
  return Map(std::move(fd), rounded);
}

Result<Segment> MemfdSegments::Map(UniqueFd fd, size_t rounded) {
  void* address = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return Fail(ENOMEM);
  // A core file would otherwise touch, and allocate, every page of every queue.
  madvise(address, rounded, MADV_DONTDUMP);
  total_bytes_ += rounded;
  const uint32_t id = ids_.At(++made_);
  segments_.emplace(id, Mapped{std::move(fd), address, rounded});
  return Segment{SegmentId{id}, {static_cast<std::byte*>(address), rounded}};
}

void MemfdSegments::DestroySegment(SegmentId segment) {
  const auto it = segments_.find(static_cast<uint32_t>(segment));
  if (it == segments_.end()) return;
  munmap(it->second.address, it->second.bytes);
  total_bytes_ -= it->second.bytes;
  segments_.erase(it);
}

void MemfdSegments::Discard(SegmentId segment, size_t offset, size_t length) {
  const auto it = segments_.find(static_cast<uint32_t>(segment));
  if (it == segments_.end()) return;
  auto* const mapping = static_cast<std::byte*>(it->second.address);
  const size_t end = offset + length;
  const size_t first_page = RoundToPages(offset);
  const size_t end_page = RoundToPages(end + 1) - RoundToPages(1);  // rounded down
  if (first_page >= end_page ||
      madvise(mapping + first_page, end_page - first_page, MADV_REMOVE) != 0) {
    std::memset(mapping + offset, 0, length);
    return;
  }
  std::memset(mapping + offset, 0, first_page - offset);
  std::memset(mapping + end_page, 0, end - end_page);
}

int MemfdSegments::Descriptor(SegmentId segment) const {
  const auto it = segments_.find(static_cast<uint32_t>(segment));
  return it == segments_.end() ? -1 : it->second.fd.get();
}

}  // namespace rdmaemu::runtime
