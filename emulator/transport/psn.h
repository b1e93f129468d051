// Packet sequence numbers: 24 bits that wrap, compared over the shorter distance (IBTA 9.7.2).
#pragma once

#include <cstdint>

#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

constexpr uint32_t PsnAdd(uint32_t psn, uint32_t count) { return (psn + count) & wire::kPsnMask; }

// Returns how far `a` is ahead of `b`, from -2^23 to 2^23 - 1. Negative: `a` is behind.
constexpr int32_t PsnDiff(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

// Returns the PSNs that `length` bytes need. A message without bytes needs one.
constexpr uint32_t PacketsFor(uint64_t length, uint32_t mtu_bytes) {
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu_bytes - 1) / mtu_bytes);
}

}  // namespace rdmaemu::transport
