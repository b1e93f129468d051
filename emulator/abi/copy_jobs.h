// Copies that a program's polling thread makes for its host. The jobs are in shared memory that
// both sides write. The host checks each copy against memory regions and access rights. The program
// then moves the bytes once with process_vm_writev or process_vm_readv. The host would have to move
// the bytes twice. Only the host decides what happens after a failed copy. The host offers the copy
// again, or makes the copy itself. The host does the same when no thread takes the offer.
//
// A copy to another host ends with a mark. The other host then sees the copy at once, and this host
// learns of it later. A copy that awaits the other host (kAwaiting) goes into this host's memory,
// unless the other host names a better place: the memory of its own program. For a moment only the
// other host may change such a job (kAdjusting).
//
// A host can recall a job from a thread that has taken it, but has not begun to copy (JobPage::
// Recall). A thread that was stopped for a while then copies nothing when it continues.
//
// A program that reports a false result damages only its own data. The host uses no index that the
// program wrote.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "emulator/abi/permit.h"

namespace rdmaemu {

struct CopyRange {
  uint64_t address, length;  // bytes
};

struct alignas(64) CopyJob {
  static constexpr uint32_t kMaxRanges = 4;  // on each side
  enum State : uint32_t {
    kFree,
    kOffered,
    kTaken,
    kDone,
    kFailed,
    kRefused,
    kAwaiting,
    kAdjusting,
    kRecalled,  // a thread has taken it, and must not begin to copy
  };

  uint32_t word;      // the state, and the lower bits of `number`
  uint32_t number;    // its position in the sequence of all jobs
  uint32_t pid;       // of the other process, as the program sees it
  uint32_t mark_pid;  // of the process to which the mark goes
  uint32_t pull;      // 1: from the other process, 0: to it
  uint32_t own_count, other_count;
  // The address in process `mark_pid` to which the program writes `mark` when it has copied all
  // other bytes. A reader that finds the mark also finds these bytes. 0: there is no mark.
  uint64_t mark_address;
  CopyRange own[kMaxRanges], other[kMaxRanges];
  uint8_t mark;

  // The state of a job with this number. A host that still has the number of an earlier job in the
  // same slot finds another word.
  static constexpr uint32_t kStateBits = 4;
  static constexpr uint32_t WordOf(State state, uint32_t number) {
    return number << kStateBits | state;
  }
  uint32_t Word() { return std::atomic_ref(word).load(std::memory_order_acquire); }
  State Now() { return State{Word() & ((1u << kStateBits) - 1)}; }
  void Set(State to) { std::atomic_ref(word).store(WordOf(to, number), std::memory_order_release); }
  bool Claim(State to) { return Claim(number, kOffered, to); }
  // Moves job `which` from state `from` to state `to`. Of the program and the hosts, only one
  // succeeds.
  bool Claim(uint32_t which, State from, State to) {
    uint32_t expected = WordOf(from, which);
    return std::atomic_ref(word).compare_exchange_strong(expected, WordOf(to, which),
                                                         std::memory_order_acq_rel);
  }
  // Returns true while a thread has this job of number `which`.
  bool IsHeld(uint32_t which) {
    const uint32_t now = Word();
    return now == WordOf(kTaken, which) || now == WordOf(kRecalled, which);
  }
  // Ends job `which`, unless its host has taken it back. Only the thread that holds it calls this.
  void End(uint32_t which, State to) {
    if (!Claim(which, kTaken, to)) (void)Claim(which, kRecalled, to);
  }
};

struct JobPage {
  static constexpr uint32_t kSlots = 32;  // a power of two

  // The program writes these four members. `polls` counts how often its threads polled for
  // completions. `busy` is the thread that copies now (gettid), or 0. `next` is the next job to
  // examine. Only one thread executes jobs, because jobs of one QP must stay in order. `executes`
  // is 1 while that thread executes a request by a permit instead (permit.h).
  alignas(64) uint32_t polls;
  uint32_t busy;
  uint32_t next;
  uint32_t executes;
  // Hosts write these: the number after the last offered job, 1 when the host frees the page, and
  // how often a host has recalled a job. A thread begins no copy after the last one has changed.
  alignas(64) uint32_t offered;
  uint32_t is_ended;
  uint32_t recalls;
  CopyJob jobs[kSlots];
  // Permits of other hosts (permit.h). A slot belongs to one QP at a time.
  static constexpr uint32_t kLentPermits = 32;
  alignas(64) LentPermit lent[kLentPermits];

  // Makes `thread` the one that copies. Returns false while another one is.
  bool BeginCopies(uint32_t thread) {
    uint32_t none = 0;
    return std::atomic_ref(busy).compare_exchange_strong(none, thread);
  }
  void EndCopies() { std::atomic_ref(busy).store(0, std::memory_order_release); }
  // Returns true if there are jobs that no thread has examined.
  bool HasOffers() {
    return std::atomic_ref(next).load(std::memory_order_relaxed) !=
           std::atomic_ref(offered).load(std::memory_order_relaxed);
  }
  // Recalls job `which` from the thread that has taken it, and returns the thread. The caller may
  // take the job back when it has then seen the thread outside of its system call. Returns nothing
  // if no thread has the job.
  std::optional<uint32_t> Recall(CopyJob& job, uint32_t which) {
    if (job.Claim(which, CopyJob::kTaken, CopyJob::kRecalled)) {
      std::atomic_ref(recalls).fetch_add(1, std::memory_order_seq_cst);
    }
    const uint32_t thread = std::atomic_ref(busy).load(std::memory_order_acquire);
    if (!job.IsHeld(which)) return std::nullopt;
    return thread;
  }
};

}  // namespace rdmaemu
