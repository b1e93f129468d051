// Builds a whole UDP payload with its ICRC. For tests that forge packets as any stranger can.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {

inline std::vector<std::byte> MakeDatagram(const UdpFlow& flow, PacketHeaders headers,
                                           std::span<const std::byte> payload) {
  headers.pad_bytes = static_cast<uint8_t>(-payload.size() & 3);
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(EmitHeaders(headers, bytes));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + headers.pad_bytes + kIcrcBytes);
  SealPacket(flow, bytes);
  return bytes;
}

}  // namespace rdmaemu::wire
