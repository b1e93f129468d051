// When a host that finds nothing to do gives its core away, and when it sleeps. Spinning without
// yielding starves the programs that it waits for when there are fewer cores than spinners; the
// numbers are measured (docs/design.md).
#pragma once

#include <chrono>
#include <cstdint>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class IdlePolicy {
 public:
  // A scan that finds nothing looks at the descriptors too, and costs what a yield does: more of
  // them only keep the programs on this core waiting.
  static constexpr uint32_t kScansBeforeYield = 2;
  // A yield may take longer than the time below; a few scans after it find what ran meanwhile.
  static constexpr uint32_t kScansBeforeSleep = 8;
  static constexpr Duration kAwake = std::chrono::microseconds(50);
  // Being woken costs about what so many yields cost. Where both are slow (a virtual machine, a
  // busy one) the host waits longer before it sleeps, to a limit.
  static constexpr uint32_t kScansThatCostAWakeUp = 150;
  static constexpr Duration kAwakeAtMost = std::chrono::microseconds(500);

  enum class Step { kScan, kYield, kSleep };

  // What to do after a scan.
  Step Next(bool found_work, Time now) {
    if (found_work) {
      empty_scans_ = 0;
      return Step::kScan;
    }
    if (empty_scans_++ == 0) idle_since_ = now;
    const Duration idle = now - idle_since_;
    if (idle >= (empty_scans_ >= kScansThatCostAWakeUp ? kAwake : kAwakeAtMost) &&
        empty_scans_ >= kScansBeforeSleep) {
      return Step::kSleep;
    }
    return empty_scans_ > kScansBeforeYield ? Step::kYield : Step::kScan;
  }
  void Woke() { empty_scans_ = 0; }

 private:
  uint32_t empty_scans_ = 0;
  Time idle_since_{};
};

}  // namespace rdmaemu::runtime
