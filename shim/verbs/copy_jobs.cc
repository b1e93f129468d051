#include "shim/verbs/copy_jobs.h"

#include <errno.h>

#include <algorithm>

#include "shim/client/client.h"

namespace rdmaemu::shim {

uint64_t CopyBatch::MostBytes() const {
  return jobs_[0]->mark_pid == jobs_[0]->pid ? kMaxBytesAPoll : kMaxDirectBytesAPoll;
}

bool CopyBatch::Admits(const CopyJob& job) const {
  return count_ == 0 || (job.pid == jobs_[0]->pid && job.mark_pid == jobs_[0]->mark_pid &&
                         job.pull == jobs_[0]->pull && count_ < kMaxVectors &&
                         own_count_ + job.own_count < kMaxVectors &&
                         other_count_ + job.other_count < kMaxVectors && bytes_ < MostBytes());
}

void CopyBatch::Add(CopyJob& job, uint32_t number) {
  for (uint32_t i = 0; i < std::min(job.own_count, CopyJob::kMaxRanges); i++) {
    own_[own_count_++] = {reinterpret_cast<void*>(job.own[i].address), job.own[i].length};
    bytes_ += job.own[i].length;
  }
  for (uint32_t i = 0; i < std::min(job.other_count, CopyJob::kMaxRanges); i++) {
    other_[other_count_++] = {reinterpret_cast<void*>(job.other[i].address), job.other[i].length};
  }
  if (job.mark_address != 0 && job.mark_pid == job.pid) {
    own_[own_count_++] = {&job.mark, sizeof job.mark};
    other_[other_count_++] = {reinterpret_cast<void*>(job.mark_address), sizeof job.mark};
    bytes_ += sizeof job.mark;
  }
  ends_[count_] = bytes_;
  numbers_[count_] = number;
  jobs_[count_++] = &job;
}

bool CopyBatch::Take() {
  page_ = client::Jobs();
  if (page_ == nullptr || !CanCopyGuarded()) return false;
  std::atomic_ref polls(page_->polls);
  polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::atomic_ref next(page_->next);
  const uint32_t offered = std::atomic_ref(page_->offered).load(std::memory_order_acquire);
  if (next.load(std::memory_order_relaxed) == offered) return false;
  std::atomic_ref busy(page_->busy);
  uint32_t idle = 0;
  if (!busy.compare_exchange_strong(idle, CopyingThread(), std::memory_order_acquire)) return false;
  recalls_ = std::atomic_ref(page_->recalls).load(std::memory_order_acquire);
  uint32_t at = next.load(std::memory_order_relaxed);
  // Newer offers have replaced those that are older than the ring's length.
  if (offered - at > JobPage::kSlots) at = offered - JobPage::kSlots;
  for (; at != offered && bytes_ < kMaxBytesAPoll; at++) {
    CopyJob& job = page_->jobs[at % JobPage::kSlots];
    if (job.number != at) continue;
    const CopyJob::State state = job.Now();
    // The jobs behind it must not overtake it.
    if (state == CopyJob::kAwaiting || state == CopyJob::kAdjusting) break;
    if (state != CopyJob::kOffered) continue;
    // Another host may change the job until this thread has it.
    if (!job.Claim(at, CopyJob::kOffered, CopyJob::kTaken)) break;
    if (!Admits(job)) {
      if (!job.Claim(at, CopyJob::kTaken, CopyJob::kOffered)) job.End(at, CopyJob::kFailed);
      break;
    }
    Add(job, at);
  }
  next.store(at, std::memory_order_relaxed);
  if (count_ == 0) busy.store(0, std::memory_order_release);
  return count_ > 0;
}

// Writes the marks of the first jobs that go to another process than their bytes.
bool CopyBatch::Mark(uint32_t jobs) {
  if (jobs == 0 || jobs_[0]->mark_pid == jobs_[0]->pid) return true;
  for (uint32_t i = 0; i < jobs; i++) {
    own_[i] = {&jobs_[i]->mark, sizeof jobs_[i]->mark};
    other_[i] = {reinterpret_cast<void*>(jobs_[i]->mark_address), sizeof jobs_[i]->mark};
  }
  return CopyGuarded(guard(), static_cast<pid_t>(jobs_[0]->mark_pid), /*pull=*/false, {own_, jobs},
                     {other_, jobs}) == static_cast<ssize_t>(jobs);
}

// Leaves the offered copies to programs of other hosts to this host. They are behind the failed
// one, whose bytes may be the same.
void CopyBatch::FailDirect() {
  const uint32_t offered = std::atomic_ref(page_->offered).load(std::memory_order_acquire);
  for (uint32_t at = std::atomic_ref(page_->next).load(std::memory_order_relaxed); at != offered;
       at++) {
    CopyJob& job = page_->jobs[at % JobPage::kSlots];
    if (job.number != at || !job.Claim(at, CopyJob::kOffered, CopyJob::kTaken)) continue;
    if (job.mark_pid != job.pid || !job.Claim(at, CopyJob::kTaken, CopyJob::kOffered)) {
      job.End(at, CopyJob::kFailed);
    }
  }
}

// Makes the copies. The host retries a failed copy, because it can find out whose memory is
// missing.
void CopyBatch::Run() {
  const int before = errno;
  // The page's bytes may be those of later jobs already, if a host has taken back the first one.
  const bool has_marks = jobs_[0]->mark_address != 0;
  const ssize_t moved = CopyGuarded(guard(), static_cast<pid_t>(jobs_[0]->pid), jobs_[0]->pull != 0,
                                    {own_, own_count_}, {other_, other_count_});
  const CopyJob::State failed =
      moved < 0 && (errno == EPERM || errno == ENOSYS) ? CopyJob::kRefused : CopyJob::kFailed;
  uint32_t done = 0;
  while (done < count_ && moved >= static_cast<ssize_t>(ends_[done])) done++;
  if (!Mark(done)) done = 0;
  errno = before;
  for (uint32_t i = 0; i < count_; i++)
    jobs_[i]->End(numbers_[i], i < done ? CopyJob::kDone : failed);
  if (done < count_) FailDirect();
  std::atomic_ref(page_->busy).store(0, std::memory_order_release);
  // The other host sees the marks, and its answer wakes up this program's host. A failed copy has
  // no mark.
  const bool are_all_marked = has_marks && done == count_;
  if (!are_all_marked) client::JobsDone();
}

bool DoCopyJobs() {
  CopyBatch batch;
  if (!batch.Take()) return false;
  batch.Run();
  client::Count(&ProgramPlace::copies);
  return true;
}

}  // namespace rdmaemu::shim
