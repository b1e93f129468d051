// The invariant CRC of RoCEv2 (IBTA A17.3.3). The CRC covers the pseudo IP and UDP headers, with
// the variant fields set to ones, then the BTH and the rest. The reference is the kernel's
// rxe_icrc.c.
#pragma once

#include <array>
#include <cstddef>
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

  friend bool operator==(const UdpFlow&, const UdpFlow&) = default;
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

// VerifyIcrc and SealPacket for many packets of few flows. Packets of one flow and size have equal
// pseudo headers, and the CRC is linear. The object therefore computes the pseudo headers' share of
// the CRC once, and each packet needs one pass over its own bytes. Not thread-safe.
class IcrcCache {
 public:
  std::optional<uint16_t> Verify(const UdpFlow& flow, std::span<const std::byte> udp_payload);
  void Seal(const UdpFlow& flow, std::span<std::byte> udp_payload);

 private:
  // Enough for the sizes of a few connections. A packet without an entry costs two CRCs.
  static constexpr size_t kEntries = 64;
  struct Entry {
    UdpFlow flow{};
    size_t body_bytes = 0;   // 0: unused
    std::byte congestion{};  // the byte of the BTH with FECN and BECN, which the ICRC masks
    uint32_t share = 0;
  };

  uint32_t Icrc(const UdpFlow& flow, std::span<const std::byte> body);

  std::array<Entry, kEntries> entries_{};
};

}  // namespace rdmaemu::wire
