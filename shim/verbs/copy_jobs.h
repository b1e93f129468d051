// Copies that a thread does for its host while it polls (emulator/abi/copy_jobs.h).
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "emulator/abi/copy_jobs.h"

namespace rdmaemu::shim {

// Jobs that one system call does: of one other process, in one direction. Take and Run are called
// by one thread; while a batch is taken, other threads of the process take none, because a later
// job may write where an earlier one does.
class CopyBatch {
 public:
  // Takes what the host offers, up to a bound; false when that is nothing. Run must follow a true.
  bool Take();
  // Copies, and says so to the host.
  void Run();

 private:
  // Limits of one poll: the thread then looks at its queues again.
  static constexpr uint64_t kMaxBytesAPoll = 1 << 20;
  static constexpr uint32_t kMaxVectors = 32;

  bool Admits(const CopyJob& job) const;
  void Add(CopyJob& job);

  JobPage* page_;
  CopyJob* jobs_[kMaxVectors];
  uint32_t count_ = 0;
  iovec own_[kMaxVectors], other_[kMaxVectors];
  uint32_t own_count_ = 0, other_count_ = 0;
  uint64_t bytes_ = 0;
};

// Does what the host has offered, up to a bound; true when there was something. Counts the look, by
// which the host knows that somebody polls.
bool DoCopyJobs();

}  // namespace rdmaemu::shim
