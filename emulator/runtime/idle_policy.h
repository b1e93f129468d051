// Decides when an idle host yields its core and when it sleeps. If there are fewer cores than
// spinning processes, spinning without yielding starves the programs that the host waits for. The
// numbers are measured (docs/design.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "emulator/base/time.h"
#include "emulator/runtime/early_sleep.h"

namespace rdmaemu::runtime {

class IdlePolicy {
 public:
  // An empty scan may poll the descriptors, which costs as much as a yield. More scans delay
  // the programs and hosts that wait for this core.
  static constexpr uint32_t kScansBeforeYield = 2;
  // A host without peers scans so often instead. Its programs then run on the other processors, to
  // which the kernel moves threads that wait. A peer's host would have to wait, too.
  static constexpr uint32_t kScansWithoutPeers = 50;
  // A yield may take longer than kAwake. A few scans after a yield detect the work of programs that
  // ran meanwhile.
  static constexpr uint32_t kScansBeforeSleep = 8;
  static constexpr Duration kAwake = std::chrono::microseconds(50);
  // A wake-up costs about as much as this many yields. Where both are slow (on a virtual or busy
  // machine), the host waits longer before it sleeps, up to kAwakeAtMost.
  static constexpr uint32_t kScansThatCostAWakeUp = 150;
  static constexpr Duration kAwakeAtMost = std::chrono::microseconds(500);

  enum class Step { kScan, kYield, kSleep };

  // The host must not sleep early: time may jump while it sleeps, or it handles a stream, whose
  // copies keep processors for a long time.
  void StayAwake(bool stays_awake) { stays_awake_ = stays_awake; }
  // `has_none`: the host may run on several processors, and works for its own programs only.
  void HasNoPeers(bool has_none) {
    scans_before_yield_ = has_none ? kScansWithoutPeers : kScansBeforeYield;
  }

  // Returns what to do after a scan that began at `now`. `caller_is_next`: the scan found no work
  // but calls, and a caller that it answered waits for this processor.
  Step Next(bool found_work, Time now, bool caller_is_next = false) {
    if (scan_began_ && !stays_awake_) early_sleep_.Waited(now - *scan_began_, now);
    scan_began_ = now;
    return Decide(found_work, now, caller_is_next);
  }
  void Woke() {
    empty_scans_ = 0;
    scan_began_.reset();
  }
  // The time until the next scan counts for nothing. Call this while the host waits for copies that
  // programs make: a program keeps a processor during a copy, and then waits.
  void DiscountWait() { scan_began_.reset(); }

 private:
  Step Decide(bool found_work, Time now, bool caller_is_next) {
    if (found_work) {
      empty_scans_ = 0;
      return caller_is_next ? Step::kYield : Step::kScan;
    }
    if (empty_scans_++ == 0) idle_since_ = now;
    const Duration idle = now - idle_since_;
    if (idle >= (empty_scans_ >= kScansThatCostAWakeUp ? kAwake : kAwakeAtMost) &&
        empty_scans_ >= kScansBeforeSleep) {
      return Step::kSleep;
    }
    const bool sleeps_early = !stays_awake_ && early_sleep_.IsOn(now);
    if (empty_scans_ <= (sleeps_early ? kScansBeforeYield : scans_before_yield_)) {
      return Step::kScan;
    }
    return sleeps_early ? Step::kSleep : Step::kYield;
  }

  uint32_t empty_scans_ = 0;
  Time idle_since_{};
  bool stays_awake_ = false;
  uint32_t scans_before_yield_ = kScansBeforeYield;
  std::optional<Time> scan_began_;  // the last one, unless the host has slept since
  EarlySleep early_sleep_;
};

}  // namespace rdmaemu::runtime
