// A lock that is held for a few instructions. The lock spins, yields and survives fork. If another
// thread of the parent held the lock, a forked child takes it over. Zeroed memory is an unlocked
// lock.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "shim/client/race_detector.h"

namespace rdmaemu::client {

// Incremented in every forked child, and never 0. Only the child handler of fork changes it.
extern std::atomic<uint32_t> g_fork_generation;

class ForkLock {
 public:
  void Lock() {
    const uint32_t mine = g_fork_generation.load(std::memory_order_relaxed);
    for (unsigned tries = 0;; tries++) {
      uint32_t seen = owner_.load(std::memory_order_relaxed);
      // A lock of another generation belongs to a thread that does not exist in this process.
      if (seen != mine && owner_.compare_exchange_weak(seen, mine, std::memory_order_acquire)) {
        AcquireFrom(this);
        return;
      }
      if (tries >= kSpins) sched_yield();
    }
  }
  // Takes the lock if it is free now. A lock of another generation counts as held.
  bool TryLock() {
    uint32_t free = 0;
    const uint32_t mine = g_fork_generation.load(std::memory_order_relaxed);
    if (!owner_.compare_exchange_strong(free, mine, std::memory_order_acquire)) return false;
    AcquireFrom(this);
    return true;
  }
  void Unlock() {
    ReleaseTo(this);
    owner_.store(0, std::memory_order_release);
  }

 private:
  static constexpr unsigned kSpins = 16;
  std::atomic<uint32_t> owner_;
};

class ForkLockGuard {
 public:
  explicit ForkLockGuard(ForkLock& lock) : lock_(lock) { lock_.Lock(); }
  ~ForkLockGuard() { lock_.Unlock(); }
  ForkLockGuard(const ForkLockGuard&) = delete;
  ForkLockGuard& operator=(const ForkLockGuard&) = delete;

 private:
  ForkLock& lock_;
};

}  // namespace rdmaemu::client
