// Whether other threads are ready to run on the processors on which this process waits.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu::client {

// A thread that waits a few microseconds for another processor should yield if other threads are
// ready to run on its own one, and spin otherwise: a yield costs a system call, and makes the
// kernel prefer other threads for the next milliseconds (EEVDF, Linux 6.6). The duration of a yield
// tells the two cases apart, because a yield without another thread returns at once.
//
// Thread-safe, and usable in signal handlers: calls at the same time may lose a measurement.
class Neighbours {
 public:
  // A yield has given the processor to another thread if it lasts longer than this number of times
  // the shortest yield.
  static constexpr uint64_t kSwitch = 3;
  // After this number of consecutive yields to nobody, the thread counts as alone.
  static constexpr uint32_t kMinAlone = 8;
  // One of this number of waits yields at once, to notice other threads.
  static constexpr uint32_t kWaitsPerProbe = 16;

  // Call this after each yield.
  void Yielded(uint64_t took_ns) {
    const uint64_t shortest = shortest_ns_.load(std::memory_order_relaxed);
    if (took_ns < shortest) shortest_ns_.store(took_ns, std::memory_order_relaxed);
    const bool has_run = shortest != kNone && took_ns > kSwitch * shortest;
    const uint32_t alone = alone_.load(std::memory_order_relaxed);
    alone_.store(has_run ? 0 : alone + (alone < kMinAlone ? 1 : 0), std::memory_order_relaxed);
  }

  // Call this at the beginning of each wait. Returns true if the thread should spin first.
  bool MaySpin() {
    if (alone_.load(std::memory_order_relaxed) < kMinAlone) return false;
    const uint32_t waits = waits_.load(std::memory_order_relaxed) + 1;
    waits_.store(waits, std::memory_order_relaxed);
    return waits % kWaitsPerProbe != 0;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  std::atomic<uint64_t> shortest_ns_{kNone};
  std::atomic<uint32_t> alone_{0};  // consecutive yields to nobody, up to kMinAlone
  std::atomic<uint32_t> waits_{0};
};

// Yields once, and measures it.
void YieldToNeighbours();
// Returns Neighbours::MaySpin for this process.
bool MaySpin();

}  // namespace rdmaemu::client
