#include "emulator/transport/foreign_job.h"

namespace rdmaemu::transport {

// Between the two claims no other process changes the job.
bool ForeignJob::Redirect(CopyJob::State from, Destination to) {
  CopyJob& job = this->job();
  if (!job.Claim(number_, from, CopyJob::kAdjusting)) return false;
  replaced_ = {job.pid, job.other_count, job.other[0], job.mark};
  job.pid = to.pid;
  job.other_count = to.count;
  job.other[0] = to.range;
  job.mark = to.mark;
  return job.Claim(number_, CopyJob::kAdjusting, CopyJob::kOffered);
}

bool ForeignJob::Offer(uint32_t pid, const MemoryRange& to) {
  is_offered_ = Redirect(CopyJob::kAwaiting, {pid, 1, {to.address, to.length}, placed_});
  return is_offered_;
}

bool ForeignJob::Decline() { return job().Claim(number_, CopyJob::kAwaiting, CopyJob::kOffered); }

bool ForeignJob::IsDirect() const {
  return is_offered_ && (Is(CopyJob::kOffered) || job().IsHeld(number_) || Is(CopyJob::kDone));
}

bool ForeignJob::IsOver() const { return is_over_ && !job().IsHeld(number_); }

bool ForeignJob::Withdraw() {
  if (is_offered_ && Redirect(CopyJob::kOffered, replaced_)) is_offered_ = false;
  // A thread that has no room for a job offers it again.
  return !job().IsHeld(number_) && !(is_offered_ && Is(CopyJob::kOffered));
}

bool ForeignJob::TakeBack() {
  if (!Redirect(CopyJob::kRecalled, replaced_)) return false;
  is_offered_ = false;
  return true;
}

}  // namespace rdmaemu::transport
