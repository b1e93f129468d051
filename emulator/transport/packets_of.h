// The packets of a train: headers and bytes of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/transport/train.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

// Returns the number of bytes that pad a payload to a multiple of 4 bytes.
inline uint8_t PadOf(uint64_t payload_bytes) { return static_cast<uint8_t>(-payload_bytes & 3); }

wire::UdpFlow FlowOf(const Train& train);
// Returns the payload bytes of the packet with this index.
uint64_t PayloadOf(const Train& train, uint32_t index);
// Returns the headers of that packet.
wire::PacketHeaders HeadersOf(const Train& train, uint32_t index, uint64_t payload_bytes);
// Returns the operation of that packet.
wire::Operation OperationOf(const Train& train, uint32_t index);
// Returns the length of a packet as a UDP payload with ICRC.
inline size_t DatagramBytes(const wire::OpcodeInfo& info, uint64_t payload_bytes) {
  return info.header_bytes + payload_bytes + PadOf(payload_bytes) + wire::kIcrcBytes;
}
// Writes all but payload and ICRC. Returns the place of the payload.
std::span<std::byte> FillAround(const wire::PacketHeaders& headers, size_t payload_bytes,
                                std::span<std::byte> out);
// Writes all but the ICRC.
void Fill(const wire::PacketHeaders& headers, std::span<const std::byte> payload,
          std::span<std::byte> out);

}  // namespace rdmaemu::transport
