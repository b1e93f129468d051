// Shows a host where the threads of a group run that wait or work for it. The host chooses
// its own processor by this (runtime/placement_policy.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu {

// In the page that a group of processes shares with its host. Threads write the fields without a
// lock, so single counts may get lost.
struct alignas(64) ProgramPlace {
  // The processor of the thread that has last counted, counted from 1. 0: unknown.
  uint32_t processor;
  // How often threads made calls, yielded because a poll found nothing, and made copies for the
  // host (copy_jobs.h).
  uint32_t calls, vain_polls, copies;
};

// Call this in a thread on `processor`. `count` is one of the page's counts.
inline void NotePlace(ProgramPlace& place, uint32_t ProgramPlace::*count, uint32_t processor) {
  const auto store = [](uint32_t& word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  };
  const auto load = [](uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  };
  if (load(place.processor) != processor + 1) store(place.processor, processor + 1);
  store(place.*count, load(place.*count) + 1);
}

}  // namespace rdmaemu
