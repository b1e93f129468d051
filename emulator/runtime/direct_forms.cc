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

std::shared_ptr<FormOfPeer> FormOfPeer::Open(ForeignJobPages& pages, uint32_t pid,
                                             std::span<const std::byte> payload) {
  StoredReference stored;
  if (payload.size() < sizeof stored) return nullptr;
  std::memcpy(&stored, payload.data(), sizeof stored);
  if (stored.check != StoredReference::CheckOf(stored.job) || stored.job.slot >= JobPage::kSlots) {
    return nullptr;
  }
  std::shared_ptr<JobPage> page = pages.Find(pid, stored.job);
  if (page == nullptr) return nullptr;
  return std::shared_ptr<FormOfPeer>(new FormOfPeer(std::move(page), stored.job));
}

// Between the two claims no other process changes the job.
bool FormOfPeer::Offer(uint32_t pid, std::span<const MemoryRange> to) {
  CopyJob& job = this->job();
  if (to.empty() || to.size() > kMaxRanges ||
      !job.Claim(number_, CopyJob::kAwaiting, CopyJob::kAdjusting)) {
    return false;
  }
  saved_.pid = job.pid;
  saved_.other_count = std::min(job.other_count, CopyJob::kMaxRanges);
  std::copy_n(job.other, CopyJob::kMaxRanges, saved_.other.begin());
  saved_.mark = job.mark;
  job.pid = pid;
  job.other_count = static_cast<uint32_t>(to.size());
  std::ranges::transform(to, job.other, [](const MemoryRange& range) {
    return CopyRange{range.address, range.length};
  });
  job.mark = static_cast<uint8_t>(WireForm::kPlacedTrains);
  is_offered_ = job.Claim(number_, CopyJob::kAdjusting, CopyJob::kOffered);
  return is_offered_;
}

void FormOfPeer::Decline() { (void)job().Claim(number_, CopyJob::kAwaiting, CopyJob::kOffered); }

bool FormOfPeer::IsDirect() {
  if (!is_offered_) return false;
  const uint32_t word = job().Word();
  return word == CopyJob::WordOf(CopyJob::kOffered, number_) ||
         word == CopyJob::WordOf(CopyJob::kTaken, number_) ||
         word == CopyJob::WordOf(CopyJob::kDone, number_);
}

bool FormOfPeer::IsOver() const {
  return is_over_ && job().Word() != CopyJob::WordOf(CopyJob::kTaken, number_);
}

bool FormOfPeer::Withdraw() {
  CopyJob& job = this->job();
  if (is_offered_ && job.Claim(number_, CopyJob::kOffered, CopyJob::kAdjusting)) {
    job.pid = saved_.pid;
    job.other_count = saved_.other_count;
    std::ranges::copy(saved_.other, job.other);
    job.mark = saved_.mark;
    is_offered_ = false;
    (void)job.Claim(number_, CopyJob::kAdjusting, CopyJob::kOffered);
  }
  // A thread that has no room for a job offers it again.
  const uint32_t word = job.Word();
  return word != CopyJob::WordOf(CopyJob::kTaken, number_) &&
         !(is_offered_ && word == CopyJob::WordOf(CopyJob::kOffered, number_));
}

}  // namespace rdmaemu::runtime
