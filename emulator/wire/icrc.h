// The invariant CRC of RoCEv2 (IBTA A17.3.3). The CRC covers the pseudo IP and UDP headers, with
// the variant fields set to ones, then the BTH and the rest. The reference is the kernel's
// rxe_icrc.c.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "emulator/base/net_address.h"

namespace rdmaemu::wire {

// The addresses and ports of a UDP datagram.
struct UdpFlow {
  NetAddress source;
  NetAddress destination;
  uint16_t source_port;
  uint16_t destination_port;
};

// Returns the ICRC as a packet's last four bytes have it, read as little-endian. `body` is the UDP
// payload without the ICRC. `ip_id` is the ID of an IPv4 header with DF set. IPv6 ignores it.
uint32_t Icrc(const UdpFlow& flow, std::span<const std::byte> body, uint16_t ip_id = 0);

// Returns the IP ID that makes the ICRC of a received datagram correct. The ID is 0 for IPv6 and
// when the sender wrote 0. Returns nothing when the datagram is corrupt. The CRC is linear, so the
// ID is computed from the difference of two CRCs.
std::optional<uint16_t> VerifyIcrc(const UdpFlow& flow, std::span<const std::byte> udp_payload);

// Writes the ICRC into the last four bytes of a finished UDP payload.
void SealPacket(const UdpFlow& flow, std::span<std::byte> udp_payload);

}  // namespace rdmaemu::wire
