// A short wait for another process.
#pragma once

#include <cstdint>

#include "shim/client/yield_budget.h"

namespace rdmaemu::client {

// Spins first, then yields, and then sleeps. Not thread-safe. Usable in signal handlers.
class ParallelWait {
 public:
  explicit ParallelWait(uint64_t most_ns) : most_ns_(most_ns) {}
  // Returns false if the time is over. Else it has let other processes run, but for the first call.
  bool Take();

 private:
  static constexpr uint32_t kSpins = 20;
  static constexpr uint64_t kSleep_ns = 100'000;

  uint64_t most_ns_, begun_ns_ = 0;
  uint32_t takes_ = 0;
  YieldBudget yields_;
};

}  // namespace rdmaemu::client
