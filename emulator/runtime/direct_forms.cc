#include "emulator/runtime/direct_forms.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "emulator/runtime/peer_files.h"

namespace rdmaemu::runtime {
namespace {

constexpr int kSegmentSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Maps the JobPage at `offset` of a segment, which is sealed, so that no access can fault.
std::shared_ptr<JobPage> Map(int fd, uint32_t offset) {
  struct stat status;
  const uint64_t end = uint64_t{offset} + sizeof(JobPage);
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || offset % alignof(JobPage) != 0 ||
      end > static_cast<uint64_t>(status.st_size) ||
      (fcntl(fd, F_GET_SEALS) & kSegmentSeals) != kSegmentSeals) {
    return nullptr;
  }
  const uint64_t begin = offset & ~(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1);
  const size_t bytes = end - begin;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return nullptr;
  auto* const page = reinterpret_cast<JobPage*>(static_cast<std::byte*>(memory) + (offset - begin));
  return {page, [memory, bytes](JobPage*) { munmap(memory, bytes); }};
}

}  // namespace

std::shared_ptr<JobPage> ForeignJobPages::Find(uint32_t pid, const JobReference& job) {
  const auto found = pages_.find({pid, job.segment, job.offset});
  if (found != pages_.end()) return found->second;
  const UniqueFd fd = OpenOf(pid, static_cast<uint32_t>(job.fd), O_RDWR);
  if (!fd) return nullptr;
  std::shared_ptr<JobPage> page = Map(fd.get(), job.offset);
  if (page == nullptr) return nullptr;
  if (pages_.size() >= kMaxPages) pages_.clear();
  return pages_[{pid, job.segment, job.offset}] = std::move(page);
}

void ForeignJobPages::ForgetEnded() {
  std::erase_if(pages_, [](const auto& each) {
    return std::atomic_ref(each.second->is_ended).load(std::memory_order_relaxed) != 0;
  });
}

std::shared_ptr<transport::ForeignJob> ForeignJobPages::Open(uint32_t pid,
                                                             std::span<const std::byte> payload) {
  StoredReference stored;
  if (payload.size() < sizeof stored) return nullptr;
  std::memcpy(&stored, payload.data(), sizeof stored);
  if (stored.check != StoredReference::CheckOf(stored.job) || stored.job.slot >= JobPage::kSlots) {
    return nullptr;
  }
  std::shared_ptr<JobPage> page = Find(pid, stored.job);
  if (page == nullptr) return nullptr;
  return std::make_shared<transport::ForeignJob>(std::move(page), stored.job,
                                                 static_cast<uint8_t>(WireForm::kPlacedTrains));
}

}  // namespace rdmaemu::runtime
