// Packets as a pcapng capture (draft-ietf-opsawg-pcapng): the bytes of the file's blocks, with IP
// and UDP headers built around each UDP payload, as Wireshark wants to see it. Link type RAW,
// timestamps in nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class PcapngWriter {
 public:
  // The most bytes a UDP datagram over IPv4 can carry; larger payloads are not written.
  static constexpr size_t kMaxUdpPayloadBytes = 65507;

  // wall_offset: what to add to a Time to get nanoseconds since 1970. host: the interface's name.
  PcapngWriter(Duration wall_offset, std::string_view host);

  // The blocks every file starts with: section header and interface description. Once a file.
  void AppendStart(std::string& out) const;
  // One enhanced packet block. The headers have TTL 64, TOS 0, DF, IP ID 0 and right checksums.
  void AppendPacket(Time time, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
                    std::string& out) const;

 private:
  Duration wall_offset_;
  std::string host_;
};

}  // namespace rdmaemu::trace
