// Chooses how threads wait for the host: whether they yield before they sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace rdmaemu::client {

// A yield costs less than a sleep and a wake-up, unless the processor goes to a thread of another
// program. A yield then costs up to a time slice of that thread, whereas a thread that wakes up
// interrupts it. With one such thread on each processor, waits with yields take fifty times as long
// as waits without. No duration of a yield tells the two cases apart on all machines, so this class
// compares how long waits last either way: most waits go the better way, and now and then one goes
// the other way.
//
// Times are in nanoseconds. Thread-safe, and usable in signal handlers: calls at the same time may
// lose a measurement.
class WaitChoice {
 public:
  enum Way : uint32_t { kYields, kSleeps };

  // A longer wait is one for something else, such as a rule that delays calls.
  static constexpr uint64_t kLongest = 20'000'000;
  // One wait goes the other way after this time. The time doubles while that way stays worse.
  static constexpr uint64_t kFirstPause = 10'000'000, kLongestPause = 1'280'000'000;
  // Threads sleep if waits with yields last this many times as long. They yield again if these
  // waits last less long. On a quiet machine, a wait with yields lasts half as long.
  static constexpr uint64_t kWorthSleeping = 2;

  // How long a measurement says something about waits that are not measured.
  static constexpr uint64_t kValidFor = 100'000'000;

  Way best() const { return best_.load(std::memory_order_relaxed); }
  bool IsRecent(uint64_t now) const {
    return now - measured_at_.load(std::memory_order_relaxed) < kValidFor;
  }

  // Returns the way of the next wait.
  Way Next(uint64_t now) {
    const Way best = this->best();
    uint64_t due = try_at_.load(std::memory_order_relaxed);
    if (now < due) return best;
    const uint64_t pause = pause_.load(std::memory_order_relaxed);
    // Only one thread tries it.
    if (!try_at_.compare_exchange_strong(due, now + pause, std::memory_order_relaxed)) return best;
    pause_.store(std::min(2 * pause, kLongestPause), std::memory_order_relaxed);
    return due == 0 ? best : Other(best);
  }

  // Call this after each wait.
  void Took(Way way, uint64_t duration, uint64_t now) {
    if (duration > kLongest) return;
    measured_at_.store(now, std::memory_order_relaxed);
    const Way best = this->best();
    const uint64_t before = Mean(way);
    // The last trial of the other way counts alone. If it was lucky, the next waits show that.
    const bool is_alone = before == 0 || way != best;
    means_[way].store(is_alone ? duration + 1 : (before * (kWeight - 1) + duration) / kWeight + 1,
                      std::memory_order_relaxed);
    const uint64_t yields = Mean(kYields), sleeps = Mean(kSleeps);
    if (yields == 0 || sleeps == 0) return;
    if (best == kYields ? yields <= kWorthSleeping * sleeps : yields >= sleeps) return;
    best_.store(Other(best), std::memory_order_relaxed);
    pause_.store(kFirstPause, std::memory_order_relaxed);
    try_at_.store(0, std::memory_order_relaxed);
  }

 private:
  // A new duration counts for one part of so many, so that a single long wait changes little.
  static constexpr uint64_t kWeight = 64;

  static Way Other(Way way) { return way == kYields ? kSleeps : kYields; }
  uint64_t Mean(Way way) const { return means_[way].load(std::memory_order_relaxed); }

  std::atomic<Way> best_{kYields};
  std::atomic<uint64_t> means_[2] = {};  // 0: none yet
  std::atomic<uint64_t> measured_at_{0}, try_at_{0}, pause_{kFirstPause};
};

}  // namespace rdmaemu::client
