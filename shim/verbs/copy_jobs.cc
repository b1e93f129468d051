#include "shim/verbs/copy_jobs.h"

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>

#include "shim/client/client.h"

namespace rdmaemu::shim {
namespace {

// What one poll copies before its caller looks at its queues again.
constexpr uint64_t kMaxBytesAPoll = 1 << 20;
constexpr uint32_t kMaxVectors = 32;

// Jobs that one system call does: of one other process, in one direction.
struct Batch {
  CopyJob* jobs[kMaxVectors];
  uint32_t count = 0;
  iovec own[kMaxVectors], other[kMaxVectors];
  uint32_t own_count = 0, other_count = 0;
  uint64_t bytes = 0;

  bool Takes(const CopyJob& job) const {
    return count == 0 || (job.pid == jobs[0]->pid && job.pull == jobs[0]->pull &&
                          count < kMaxVectors && own_count + job.own_count <= kMaxVectors &&
                          other_count + job.other_count <= kMaxVectors && bytes < kMaxBytesAPoll);
  }
  void Add(CopyJob& job) {
    jobs[count++] = &job;
    for (uint32_t i = 0; i < std::min(job.own_count, CopyJob::kMaxRanges); i++) {
      own[own_count++] = {reinterpret_cast<void*>(job.own[i].address), job.own[i].length};
      bytes += job.own[i].length;
    }
    for (uint32_t i = 0; i < std::min(job.other_count, CopyJob::kMaxRanges); i++) {
      other[other_count++] = {reinterpret_cast<void*>(job.other[i].address), job.other[i].length};
    }
  }
  // A copy that went wrong is the host's to try again: it knows whose memory was missing.
  void Run() {
    const int before = errno;
    const pid_t pid = static_cast<pid_t>(jobs[0]->pid);
    const ssize_t moved = jobs[0]->pull != 0
                              ? process_vm_readv(pid, own, own_count, other, other_count, 0)
                              : process_vm_writev(pid, own, own_count, other, other_count, 0);
    CopyJob::State end = CopyJob::kDone;
    if (moved != static_cast<ssize_t>(bytes)) {
      end = moved < 0 && (errno == EPERM || errno == ENOSYS) ? CopyJob::kRefused : CopyJob::kFailed;
    }
    errno = before;
    for (uint32_t i = 0; i < count; i++) jobs[i]->Set(end);
  }
};

}  // namespace

bool DoCopyJobs() {
  JobPage* page = client::Jobs();
  if (page == nullptr) return false;
  std::atomic_ref polls(page->polls);
  polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::atomic_ref next(page->next);
  const uint32_t offered = std::atomic_ref(page->offered).load(std::memory_order_acquire);
  if (next.load(std::memory_order_relaxed) == offered) return false;
  // One thread at a time: a later job may write where an earlier one does.
  std::atomic_ref busy(page->busy);
  uint32_t idle = 0;
  if (!busy.compare_exchange_strong(idle, 1, std::memory_order_acquire)) return false;
  Batch batch;
  uint32_t at = next.load(std::memory_order_relaxed);
  // What was offered longer ago than the row is long has been replaced.
  if (offered - at > JobPage::kSlots) at = offered - JobPage::kSlots;
  for (; at != offered && batch.bytes < kMaxBytesAPoll; at++) {
    CopyJob& job = page->jobs[at % JobPage::kSlots];
    if (job.number != at || job.Now() != CopyJob::kOffered) continue;
    if (!batch.Takes(job)) break;
    if (job.Claim(CopyJob::kTaken)) batch.Add(job);
  }
  if (batch.count > 0) batch.Run();
  next.store(at, std::memory_order_relaxed);
  busy.store(0, std::memory_order_release);
  if (batch.count > 0) client::JobsDone();
  return batch.count > 0;
}

}  // namespace rdmaemu::shim
