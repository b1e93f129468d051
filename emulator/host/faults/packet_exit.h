// How a host sends a packet that a fault rule delayed or damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/base/time.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu {

class PacketExit {
 public:
  virtual ~PacketExit() = default;
  // Sends a datagram that includes its ICRC. The datagram is lost when the network has no room.
  virtual void SendSealed(Time now, const wire::UdpFlow& flow, uint8_t traffic_class,
                          std::span<const std::byte> datagram) = 0;
  // Counts a packet between two QPs of the host that a rule damaged.
  virtual void CountBadIcrc() = 0;
};

}  // namespace rdmaemu
