// A wait for what another thread or process does. It has no event that a test could wait for.
#pragma once

#include <sched.h>

#include <chrono>

#include "tests/contract/support/side.h"

namespace rdma_contract {

// Yields until the condition holds. Returns false when it does not become true.
template <class Condition>
bool YieldUntil(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    sched_yield();
  }
  return true;
}

}  // namespace rdma_contract
