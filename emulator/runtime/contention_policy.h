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
// Counts the work of a host since the host has started.
struct HostWork {
  SocketBytes sockets;
  uint64_t direct_sends;  // small SENDs between its own programs
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
  // A host has long work, too, if it executes this number of SENDs between its own programs in an
  // interval, and one of them shares the host's processor. The programs have many requests at a
  // time. While all of them wait, the kernel moves that program to another processor. If all
  // programs are elsewhere already, waits would only cost the host its time for wake-ups.
  static constexpr uint64_t kManySends = 500;
  // Processors count as scarce for this long after the last sample that found them so. A host that
  // waits for a packet at the moment of a sample is not runnable.
  static constexpr Duration kHold = std::chrono::milliseconds(10);

  bool IsSampleDue(Time now) const { return now - sampled_at_ >= kInterval; }
  // Returns true if threads may wait until the next sample. Call this when a sample is due.
  // `count_waits_here` returns how often programs on the host's processor have called or waited.
  // Any change means that one is there, because programs change processors.
  // `count_runnable` returns how many threads run, wait for a processor, or would do so if they did
  // not wait for the host.
  template <class CountWaitsHere, class CountRunnable>
  bool Sample(Time now, const HostWork& work, uint32_t processors,
              CountWaitsHere&& count_waits_here, CountRunnable&& count_runnable) {
    const auto intervals = static_cast<uint64_t>((now - sampled_at_) / kInterval);
    const HostWork before = std::exchange(work_, work);
    sampled_at_ = now;
    bool has_many_sends = work.direct_sends - before.direct_sends >= kManySends * intervals;
    if (has_many_sends) {
      const uint32_t waits_here = count_waits_here();
      has_many_sends = std::exchange(waits_here_, waits_here) != waits_here;
    }
    if (!has_many_sends && !IsStream(before.sockets, work.sockets, intervals)) return false;
    if (count_runnable() > processors) scarce_at_ = now;
    return scarce_at_ && now - *scarce_at_ <= kHold;
  }

 private:
  static bool IsStream(SocketBytes before, SocketBytes now, uint64_t intervals) {
    // A closed port takes its bytes with it.
    if (now.sent < before.sent || now.received < before.received) return false;
    const uint64_t sent = now.sent - before.sent, received = now.received - before.received;
    return sent + received >= kLongWork * intervals &&
           std::max(sent, received) / kOneDirection >= std::min(sent, received);
  }

  Time sampled_at_{};
  HostWork work_{};
  uint32_t waits_here_ = 0;  // at the last sample with many SENDs
  std::optional<Time> scarce_at_;
};

}  // namespace rdmaemu::runtime
