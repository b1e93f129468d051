// The invariant CRC of RoCEv2 (IBTA A17.3.3): over the pseudo IP and UDP headers with the variant
// fields set to ones, BTH and the rest. The kernel's rxe_icrc.c is the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "emulator/base/net_address.h"

namespace rdmaemu::wire {

// Who sent a UDP datagram to whom.
struct UdpFlow {
  NetAddress source;
  NetAddress destination;
  uint16_t source_port;
  uint16_t destination_port;
};

// The ICRC as it stands in the last four bytes, read little-endian. `body` is the UDP payload
// without the ICRC. ip_id is what an IPv4 header holds (with DF set); IPv6 has none.
uint32_t Icrc(const UdpFlow& flow, std::span<const std::byte> body, uint16_t ip_id = 0);

// The IP ID that explains the ICRC of a received datagram (0 where it is IPv6 or the sender wrote
// 0), nothing when the datagram is corrupt: see facts on solving for the ID (CRC is linear).
std::optional<uint16_t> VerifyIcrc(const UdpFlow& flow, std::span<const std::byte> udp_payload);

// Writes the ICRC into the last four bytes of a finished UDP payload.
void SealPacket(const UdpFlow& flow, std::span<std::byte> udp_payload);

}  // namespace rdmaemu::wire
