// Copies that a thread makes for its host while the thread polls (emulator/abi/copy_jobs.h).
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "emulator/abi/copy_jobs.h"
#include "shim/verbs/guarded_copy.h"

namespace rdmaemu::shim {

// The jobs of one system call: they copy from or to one other process, in one direction. The same
// thread calls Take and Run. While a thread holds a batch, other threads of the process take none.
// A later job may write to the memory of an earlier one.
class CopyBatch {
 public:
  // Takes offered jobs, up to a limit. Returns false if there are none. After true the caller must
  // call Run.
  bool Take();
  // Makes the copies, and reports the result to the host.
  void Run();

 private:
  // Limits for one poll. The thread then checks its queues again.
  static constexpr uint64_t kMaxBytesAPoll = 1 << 20;
  // The same limit for copies to a program of another host. That host sees them when the last one
  // is made, and then works for the next ones.
  static constexpr uint64_t kMaxDirectBytesAPoll = 256 << 10;
  static constexpr uint32_t kMaxVectors = 32;

  // All jobs of a batch have the same Kind. A thread reads the Kind and the Counts of a job once: a
  // host that takes the job back may write the next job to the same slot.
  struct Kind {
    uint32_t pid, mark_pid, pull;
    bool has_mark;

    bool IsDirect() const { return mark_pid != pid; }
    bool operator==(const Kind&) const = default;
  };
  struct Counts {  // of ranges
    uint32_t own, other;
  };
  static Kind KindOf(const CopyJob& job);
  bool Admits(const Kind& kind, const Counts& counts) const;
  void Add(CopyJob& job, uint32_t number, const Counts& counts);
  bool Mark(uint32_t jobs);
  void FailDirect();

  CopyGuard guard() const { return {&page_->recalls, recalls_}; }

  JobPage* page_;
  uint32_t recalls_;  // of the page, before the first job was taken
  Kind kind_;         // of the first job
  CopyJob* jobs_[kMaxVectors];
  uint32_t numbers_[kMaxVectors];
  uint32_t count_ = 0;
  iovec own_[kMaxVectors], other_[kMaxVectors];
  uint64_t ends_[kMaxVectors];  // of the jobs, in bytes of the system call
  uint32_t own_count_ = 0, other_count_ = 0;
  uint64_t bytes_ = 0;
};

// Makes copies that the host has offered, up to a limit. Returns true if there were any. Counts the
// poll, which shows the host that a thread polls.
bool DoCopyJobs();

}  // namespace rdmaemu::shim
