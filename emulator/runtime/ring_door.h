// The part of a port's shared page (queue_credit.h) by which other hosts of the same user give the
// port their rings (peer_ring.h), and wake up its host. Only layouts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace rdmaemu::runtime {

// The most rings to one port. Further hosts send to the port's socket.
inline constexpr size_t kMaxRingsToPort = 64;

// A ring in a slot of the door: the writer's pid and its descriptor of the ring's memory.
struct RingOffer {
  uint32_t pid = 0;
  uint32_t fd = 0;

  static RingOffer Of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }
  uint64_t word() const { return uint64_t{pid} << 32 | fd; }
};

struct RingDoor {
  // The reader's pid and its descriptor of a pipe. A byte in the pipe wakes up the reader. The
  // pipe has no reader when the host is dead. pid 0: the port takes no rings.
  uint32_t pid;
  uint32_t wake_fd;
  std::atomic<uint32_t> asleep;
  std::atomic<uint32_t> offers;  // how many rings were offered
  // RingOffer::word. 0: free. The writer sets a slot, and the reader frees it.
  std::array<std::atomic<uint64_t>, kMaxRingsToPort> slots;
};

}  // namespace rdmaemu::runtime
