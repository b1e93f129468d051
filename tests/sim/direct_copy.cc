#include "tests/sim/direct_copy.h"

namespace rdmaemu::sim {

DirectCopy::Destination DirectCopy::Exchange(const Destination& destination) {
  CopyJob& job = this->job();
  Destination before{job.pid, job.other_count, {}, job.mark};
  std::ranges::copy(job.other, before.ranges.begin());
  job.pid = destination.pid;
  job.other_count = destination.count;
  std::ranges::copy(destination.ranges, job.other);
  job.mark = destination.mark;
  return before;
}

bool DirectCopy::Offer(uint32_t pid, std::span<const MemoryRange> to) {
  if (!job().Claim(number_, CopyJob::kAwaiting, CopyJob::kAdjusting)) {
    tally_.Count("direct.late");
    return false;
  }
  Destination named{pid, static_cast<uint32_t>(to.size()), {}, mark_};
  std::ranges::transform(to, named.ranges.begin(), [](const MemoryRange& range) {
    return CopyRange{range.address, range.length};
  });
  in_form_ = Exchange(named);
  is_offered_ = job().Claim(number_, CopyJob::kAdjusting, CopyJob::kOffered);
  tally_.Count("direct.offered");
  return is_offered_;
}

void DirectCopy::Decline() {
  if (job().Claim(number_, CopyJob::kAwaiting, CopyJob::kOffered)) tally_.Count("direct.declined");
}

bool DirectCopy::IsDirect() {
  if (!is_offered_) return false;
  const uint32_t word = job().Word();
  return word == CopyJob::WordOf(CopyJob::kOffered, number_) ||
         word == CopyJob::WordOf(CopyJob::kTaken, number_) ||
         word == CopyJob::WordOf(CopyJob::kDone, number_);
}

bool DirectCopy::Withdraw() {
  if (is_offered_ && job().Claim(number_, CopyJob::kOffered, CopyJob::kAdjusting)) {
    Exchange(in_form_);
    is_offered_ = false;
    (void)job().Claim(number_, CopyJob::kAdjusting, CopyJob::kOffered);
    tally_.Count("direct.withdrawn");
  }
  if (job().Word() != CopyJob::WordOf(CopyJob::kTaken, number_)) return true;
  tally_.Count("direct.awaited");
  return false;
}

}  // namespace rdmaemu::sim
