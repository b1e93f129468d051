// Lets a thread of a program wait until its host has used their common processor.
//
// sched_yield(2) does not give the processor to a process of another session. With autogroups
// (sched(7)) the kernel divides the time between sessions, so the thread goes on until its session
// has used its share. The host has a session of its own. A thread that has nothing to do therefore
// blocks, if the host is ready to run on the same processor.
//
// A thread on another processor may block only while the host allows it (`open_to_all`). Then the
// host has long work, and more threads are runnable than there are processors. Without a wait the
// thread takes a processor that a host needs.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu {

// In the page that a group of processes shares with its host. The group's processes can only harm
// their own waits.
struct alignas(64) HostTurn {
  // The processor on which the host has last run, counted from 1. 0: unknown.
  uint32_t processor;
  // Not 0: a thread waits, on the host's processor (kAwaitedHere) or on another one
  // (kAwaitedElsewhere). The thread sets a bit. The host clears both bits when it ends the turn.
  uint32_t awaited;
  // The number of the host's turns. The thread waits on this futex.
  uint32_t ended;
  // 1: threads on any processor may wait.
  uint32_t open_to_all;

  static constexpr uint32_t kAwaitedHere = 1, kAwaitedElsewhere = 2;
};

inline bool IsTurnHere(HostTurn& page, uint32_t processor) {
  return std::atomic_ref(page.processor).load(std::memory_order_relaxed) == processor + 1;
}

inline bool IsTurnOpenToAll(HostTurn& page) {
  return std::atomic_ref(page.open_to_all).load(std::memory_order_relaxed) != 0;
}

// Announces a wait. Returns true if the thread may block until the host's turn ends. `turn` is then
// the value that the futex must have. Block at once, with a time limit.
inline bool AnnounceTurnWait(HostTurn& page, uint32_t& host_asleep, uint32_t where,
                             uint32_t& turn) {
  turn = std::atomic_ref(page.ended).load(std::memory_order_acquire);
  std::atomic_ref(page.awaited).fetch_or(where, std::memory_order_seq_cst);
  // A host that sleeps has no turn. It stores `host_asleep` before it reads `awaited`.
  return std::atomic_ref(host_asleep).load(std::memory_order_seq_cst) == 0;
}

// As AnnounceTurnWait, for a thread on the host's processor only. Call this on `processor`.
inline bool MayAwaitTurn(HostTurn& page, uint32_t& host_asleep, uint32_t processor,
                         uint32_t& turn) {
  return IsTurnHere(page, processor) &&
         AnnounceTurnWait(page, host_asleep, HostTurn::kAwaitedHere, turn);
}

// Returns where threads wait: bits of HostTurn::awaited.
inline uint32_t TurnWaits(HostTurn& page) {
  return std::atomic_ref(page.awaited).load(std::memory_order_seq_cst);
}

// Ends the host's turn. The host then wakes all threads that wait on `ended`. Returns false when no
// thread waits.
inline bool EndTurn(HostTurn& page) {
  if (std::atomic_ref(page.awaited).exchange(0, std::memory_order_seq_cst) == 0) return false;
  std::atomic_ref(page.ended).fetch_add(1, std::memory_order_release);
  return true;
}

}  // namespace rdmaemu
