#include "shim/verbs/copy_jobs.h"

#include <errno.h>

#include <algorithm>

#include "shim/client/client.h"

namespace rdmaemu::shim {

CopyBatch::Kind CopyBatch::KindOf(const CopyJob& job) {
  return {job.pid, job.mark_pid, job.pull, job.mark_address != 0};
}

bool CopyBatch::Admits(const Kind& kind, const Counts& counts) const {
  return count_ == 0 ||
         (kind == kind_ && count_ < kMaxVectors && own_count_ + counts.own < kMaxVectors &&
          other_count_ + counts.other < kMaxVectors &&
          bytes_ < (kind.IsDirect() ? kMaxDirectBytesAPoll : kMaxBytesAPoll));
}

void CopyBatch::Add(CopyJob& job, uint32_t number, const Counts& counts) {
  for (uint32_t i = 0; i < counts.own; i++) {
    own_[own_count_++] = {reinterpret_cast<void*>(job.own[i].address), job.own[i].length};
    bytes_ += job.own[i].length;
  }
  for (uint32_t i = 0; i < counts.other; i++) {
    other_[other_count_++] = {reinterpret_cast<void*>(job.other[i].address), job.other[i].length};
  }
  if (kind_.has_mark && !kind_.IsDirect()) {
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
  if (!page_->BeginCopies(CopyingThread())) return false;
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
    const Kind kind = KindOf(job);
    const Counts counts{std::min(job.own_count, CopyJob::kMaxRanges),
                        std::min(job.other_count, CopyJob::kMaxRanges)};
    if (!Admits(kind, counts)) {
      if (!job.Claim(at, CopyJob::kTaken, CopyJob::kOffered)) job.End(at, CopyJob::kFailed);
      break;
    }
    kind_ = kind;
    Add(job, at, counts);
  }
  next.store(at, std::memory_order_relaxed);
  if (count_ == 0) page_->EndCopies();
  return count_ > 0;
}

// Writes the marks of the first jobs that go to another process than their bytes.
bool CopyBatch::Mark(uint32_t jobs) {
  if (jobs == 0 || !kind_.IsDirect()) return true;
  for (uint32_t i = 0; i < jobs; i++) {
    own_[i] = {&jobs_[i]->mark, sizeof jobs_[i]->mark};
    other_[i] = {reinterpret_cast<void*>(jobs_[i]->mark_address), sizeof jobs_[i]->mark};
  }
  return CopyGuarded(guard(), static_cast<pid_t>(kind_.mark_pid), /*pull=*/false, {own_, jobs},
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
  const ssize_t moved = CopyGuarded(guard(), static_cast<pid_t>(kind_.pid), kind_.pull != 0,
                                    {own_, own_count_}, {other_, other_count_});
  const CopyJob::State failed =
      moved < 0 && (errno == EPERM || errno == ENOSYS) ? CopyJob::kRefused : CopyJob::kFailed;
  uint32_t done = 0;
  while (done < count_ && moved >= static_cast<ssize_t>(ends_[done])) done++;
  if (!Mark(done)) done = 0;
  errno = before;
  for (uint32_t i = 0; i < count_; i++) {
    jobs_[i]->End(numbers_[i], i < done ? CopyJob::kDone : failed);
  }
  if (done < count_) FailDirect();
  page_->EndCopies();
  // The other host sees the marks, and its answer wakes up this program's host. A failed copy has
  // no mark.
  const bool are_all_marked = kind_.has_mark && done == count_;
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
