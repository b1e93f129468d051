// Copies that a program's polling thread does for its host (shared memory, both sides). The host
// has checked them against regions and rights; one process_vm_writev or process_vm_readv of the
// program moves the bytes once, where the host would have to move them twice. Only the host says
// what follows from it: it offers again, or copies itself, what nobody took or what failed.
//
// A program that lies about a copy has spoilt its own data; the host believes no index of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu {

struct CopyRange {
  uint64_t address, length;  // bytes
};

struct alignas(64) CopyJob {
  static constexpr uint32_t kMaxRanges = 4;  // on each side
  enum State : uint32_t { kFree, kOffered, kTaken, kDone, kFailed, kRefused };

  uint32_t state;
  uint32_t number;  // its place in the row of jobs
  uint32_t pid;     // of the other process, as the program sees it
  uint32_t pull;    // 1: from the other process, 0: to it
  uint32_t own_count, other_count;
  uint64_t reserved;
  CopyRange own[kMaxRanges], other[kMaxRanges];

  State Now() { return State{std::atomic_ref(state).load(std::memory_order_acquire)}; }
  void Set(State to) { std::atomic_ref(state).store(to, std::memory_order_release); }
  // One of program and host gets an offered job.
  bool Claim(State to) {
    uint32_t offered = kOffered;
    return std::atomic_ref(state).compare_exchange_strong(offered, to, std::memory_order_acq_rel);
  }
};

struct JobPage {
  static constexpr uint32_t kSlots = 32;  // a power of two

  // The program's: how often its threads looked for completions, which thread is at work (jobs of
  // one QP must not overtake each other), and the next job to look at.
  alignas(64) uint32_t polls;
  uint32_t busy;
  uint32_t next;
  // The host's: one past the last job offered.
  alignas(64) uint32_t offered;
  CopyJob jobs[kSlots];
};

}  // namespace rdmaemu
