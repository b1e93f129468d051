// Lets a thread move its host to its own processor.
//
// A host that gives up its processor may wait behind a program that spins without calls, for
// example until a peer's WRITE changes its memory. The scheduler may let the host wait until the
// next timer tick, or longer. A thread on another processor that has posted work then polls in
// vain. This thread needs its processor less than the host does.
//
// Only the host's place changes. The host allows moves only where it may run on both processors of
// a machine. The thread changes the affinity of the host, and restores it at once. The host
// restores it, too, because the thread may have been stopped or killed meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu {

// In the page that a group of processes shares with its host. The group's processes have the
// host's user id, so that they could change the affinity of the host anyway (sched(7)).
struct alignas(64) HostMove {
  static constexpr uint32_t kNone = 0;
  // In `state`, beside a processor counted from 1: the thread has changed the affinity.
  static constexpr uint32_t kDone = uint32_t{1} << 31;

  // The host writes 1 while it may be moved.
  uint32_t is_allowed;
  // The host writes 1 while another thread may have taken its processor.
  uint32_t has_yielded;
  // kNone, or the processor to which a thread moves the host, or that and kDone.
  uint32_t state;
};

// Returns true if the host waits for a processor, and a thread may move it.
inline bool MayMoveHost(HostMove& move) {
  const auto load = [](uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  };
  return load(move.is_allowed) != 0 && load(move.has_yielded) != 0 &&
         load(move.state) == HostMove::kNone;
}

// Announces that the caller moves the host to `processor`. Returns false if another thread does.
// Call HasMovedHost after the affinity has changed, and EndHostMove in any case.
inline bool BeginHostMove(HostMove& move, uint32_t processor) {
  uint32_t none = HostMove::kNone;
  return std::atomic_ref(move.state).compare_exchange_strong(none, processor + 1);
}
inline void HasMovedHost(HostMove& move, uint32_t processor) {
  std::atomic_ref(move.state).store((processor + 1) | HostMove::kDone, std::memory_order_release);
}
// Call this after the caller has restored the affinity, or has not changed it.
inline void EndHostMove(HostMove& move, uint32_t processor) {
  std::atomic_ref state(move.state);
  // The host may have restored the affinity, and another thread may have begun its move.
  uint32_t own = (processor + 1) | HostMove::kDone;
  if (state.compare_exchange_strong(own, HostMove::kNone)) return;
  own = processor + 1;
  state.compare_exchange_strong(own, HostMove::kNone);
}

// Returns the processor, counted from 1, to which a thread has moved the host. Returns 0 if no
// thread has.
inline uint32_t TakeHostMove(HostMove& move) {
  std::atomic_ref state(move.state);
  uint32_t now = state.load(std::memory_order_relaxed);
  if ((now & HostMove::kDone) == 0) return 0;
  return state.compare_exchange_strong(now, HostMove::kNone) ? now & ~HostMove::kDone : 0;
}

}  // namespace rdmaemu
