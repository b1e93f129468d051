// Packets as a pcapng capture (draft-ietf-opsawg-pcapng): the bytes of the file's blocks. The
// writer builds IP and UDP headers around each UDP payload for Wireshark. The link type is RAW, and
// timestamps are in nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class PcapngWriter {
 public:
  // The largest UDP payload over IPv4, in bytes. Larger payloads are not written.
  static constexpr size_t kMaxUdpPayloadBytes = 65507;

  // `wall_offset`: the difference between nanoseconds since 1970 and a Time. `host`: the
  // interface's name.
  PcapngWriter(Duration wall_offset, std::string_view host);

  // Appends the first blocks of a file: section header and interface description. Call it once per
  // file.
  void AppendStart(std::string& out) const;
  // Appends one enhanced packet block. The headers have TTL 64, TOS 0, DF, IP ID 0 and correct
  // checksums.
  void AppendPacket(Time time, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
                    std::string& out) const;

 private:
  Duration wall_offset_;
  std::string host_;
};

}  // namespace rdmaemu::trace
