// The host's side of the doorbells of send queues (DoorbellPage).
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "emulator/abi/ring.h"

namespace rdmaemu {

// Takes the doorbells that the group's programs have rung, and calls `handle` with each slot. A
// program may set any bit at any time, so a slot may have no queue. `slots` is the number of slots
// in use, which limits the cost. Returns true if a call of `handle` did.
template <class Handle>
bool TakeRungQueues(DoorbellPage& page, uint32_t slots, Handle&& handle) {
  bool found = false;
  const uint32_t words_used = (slots + 63) / 64;
  for (uint32_t i = 0; i * 64 < words_used; i++) {
    std::atomic_ref summary(page.summary[i]);
    if (summary.load(std::memory_order_relaxed) == 0) continue;
    for (uint64_t words = summary.exchange(0); words != 0; words &= words - 1) {
      const uint32_t word = i * 64 + static_cast<uint32_t>(std::countr_zero(words));
      if (word >= words_used) break;
      uint64_t queues = std::atomic_ref(page.queues[word]).exchange(0);
      for (; queues != 0; queues &= queues - 1) {
        found |= handle(word * 64 + static_cast<uint32_t>(std::countr_zero(queues)));
      }
    }
  }
  return found;
}

}  // namespace rdmaemu
