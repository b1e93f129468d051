// Shows a host where the threads of a group run that wait for it, and for what. The host chooses
// its own processor by this (runtime/placement_policy.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu {

// In the page that a group of processes shares with its host. Threads write the fields without a
// lock, so single counts may get lost.
struct alignas(64) ProgramPlace {
  // The processor of the thread that has last waited, counted from 1. 0: unknown.
  uint32_t processor;
  // How often threads waited for a call's reply, and yielded because a poll found nothing.
  uint32_t calls, vain_polls;
};

// Call this in a thread that begins to wait on `processor`. `waits` is one of the page's counts.
inline void NoteWait(ProgramPlace& place, uint32_t& waits, uint32_t processor) {
  const auto store = [](uint32_t& word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  };
  const auto load = [](uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  };
  if (load(place.processor) != processor + 1) store(place.processor, processor + 1);
  store(waits, load(waits) + 1);
}

}  // namespace rdmaemu
