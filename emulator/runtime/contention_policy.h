// Decides when threads on other processors than the host's may wait for the end of the host's turn
// (HostTurn::open_to_all). A thread that polls in vain uses a whole processor. If more threads are
// runnable than there are processors, a host then waits for a processor. A wait costs a wake-up,
// and only long work repays this cost.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "emulator/base/time.h"

namespace rdmaemu::runtime {

// Bytes of datagrams.
struct SocketBytes {
  uint64_t sent, received;
};

class ContentionPolicy {
 public:
  // Between samples. A sample that counts threads is a system call.
  static constexpr Duration kInterval = std::chrono::milliseconds(1);
  // A host has long work if its sockets carry this number of bytes in an interval. Messages of 64
  // bytes carry less at any rate that a host reaches, and their completions are near.
  static constexpr uint64_t kLongWork = uint64_t{512} << 10;
  // Long work is a stream: one direction carries this many times the bytes of the other one.
  // Programs that answer each other send as much as they receive. Each of their messages waits for
  // the one before, so a wake-up would delay all of them.
  static constexpr uint64_t kOneDirection = 8;
  // Processors count as scarce for this long after the last sample that found them so. A host that
  // waits for a packet at the moment of a sample is not runnable.
  static constexpr Duration kHold = std::chrono::milliseconds(10);

  bool IsSampleDue(Time now) const { return now - sampled_at_ >= kInterval; }
  // Returns true if threads may wait until the next sample. Call this when a sample is due. `bytes`
  // is what the sockets have carried in all. `count_runnable` returns how many threads run, wait
  // for a processor, or would do so if they did not wait for the host.
  template <class CountRunnable>
  bool Sample(Time now, SocketBytes bytes, uint32_t processors, CountRunnable&& count_runnable) {
    const Duration elapsed = now - sampled_at_;
    const SocketBytes before = std::exchange(bytes_, bytes);
    sampled_at_ = now;
    // A closed port takes its bytes with it.
    if (bytes.sent < before.sent || bytes.received < before.received) return false;
    const uint64_t sent = bytes.sent - before.sent, received = bytes.received - before.received;
    if (sent + received < kLongWork * static_cast<uint64_t>(elapsed / kInterval)) return false;
    if (std::max(sent, received) / kOneDirection < std::min(sent, received)) return false;
    if (count_runnable() > processors) scarce_at_ = now;
    return scarce_at_ && now - *scarce_at_ <= kHold;
  }

 private:
  Time sampled_at_{};
  SocketBytes bytes_{};
  std::optional<Time> scarce_at_;
};

}  // namespace rdmaemu::runtime
