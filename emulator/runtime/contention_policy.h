// Decides when threads on other processors than the host's may wait for the end of the host's turn
// (HostTurn::open_to_all). A thread that polls in vain uses a whole processor. If more threads are
// runnable than there are processors, a host then waits for a processor. A wait costs a wake-up,
// and only long work repays this cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

class ContentionPolicy {
 public:
  // Between samples. A sample that counts threads is a system call.
  static constexpr Duration kInterval = std::chrono::milliseconds(1);
  // A host has long work if its sockets carry this number of bytes in an interval. Messages of 64
  // bytes carry less at any rate that a host reaches, and their completions are near.
  static constexpr uint64_t kLongWork = uint64_t{512} << 10;
  // Processors count as scarce for this long after the last sample that found them so. A host that
  // waits for a packet at the moment of a sample is not runnable.
  static constexpr Duration kHold = std::chrono::milliseconds(10);

  bool IsSampleDue(Time now) const { return now - sampled_at_ >= kInterval; }
  // Returns true if threads may wait until the next sample. Call this when a sample is due. `bytes`
  // is what the sockets have carried since the last sample. `count_runnable` returns how many
  // threads run, wait for a processor, or would do so if they did not wait for the host.
  template <class CountRunnable>
  bool Sample(Time now, uint64_t bytes, uint32_t processors, CountRunnable&& count_runnable) {
    const Duration elapsed = now - sampled_at_;
    sampled_at_ = now;
    if (bytes < kLongWork * static_cast<uint64_t>(elapsed / kInterval)) return false;
    if (count_runnable() > processors) scarce_at_ = now;
    return scarce_at_ && now - *scarce_at_ <= kHold;
  }

 private:
  Time sampled_at_{};
  std::optional<Time> scarce_at_;
};

}  // namespace rdmaemu::runtime
