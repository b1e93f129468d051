// The rdma_cm header in private data (struct cma_hdr of the kernel's cma.c): version, IP version in
// the upper half of a byte, port, two 16-byte addresses. An IPv4 address is in the last 4 of 16
// bytes.
#include <algorithm>
#include <cstring>

#include "emulator/wire/cm_message.h"

namespace rdmaemu::wire {
namespace {

constexpr uint8_t kVersion = 0;
constexpr size_t kIpVersionAt = 1, kPortAt = 2, kSourceAt = 4, kDestinationAt = 20;
constexpr size_t kIpv4InAddress = 12;

NetAddress Load(const uint8_t* from, uint8_t ip_version) {
  if (ip_version == 4) {
    const uint8_t* p = from + kIpv4InAddress;
    return NetAddress::Ipv4(uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 |
                            p[3]);
  }
  NetAddress address;
  std::memcpy(address.bytes.data(), from, address.bytes.size());
  return address;
}

void Store(const NetAddress& address, uint8_t ip_version, uint8_t* to) {
  const size_t skip = ip_version == 4 ? kIpv4InAddress : 0;
  std::memset(to, 0, skip);
  std::memcpy(to + skip, address.bytes.data() + skip, address.bytes.size() - skip);
}

}  // namespace

std::optional<RdmaCmHeader> ParseRdmaCmHeader(std::span<const uint8_t> private_data) {
  if (private_data.size() < RdmaCmHeader::kBytes || private_data[0] != kVersion) {
    return std::nullopt;
  }
  RdmaCmHeader header;
  header.ip_version = private_data[kIpVersionAt] >> 4;
  if (header.ip_version != 4 && header.ip_version != 6) return std::nullopt;
  header.source_port =
      static_cast<uint16_t>(private_data[kPortAt] << 8 | private_data[kPortAt + 1]);
  header.source = Load(private_data.data() + kSourceAt, header.ip_version);
  header.destination = Load(private_data.data() + kDestinationAt, header.ip_version);
  return header;
}

void EmitRdmaCmHeader(const RdmaCmHeader& header, std::span<uint8_t> private_data) {
  if (private_data.size() < RdmaCmHeader::kBytes) return;
  private_data[0] = kVersion;
  private_data[kIpVersionAt] = static_cast<uint8_t>(header.ip_version << 4);
  private_data[kPortAt] = static_cast<uint8_t>(header.source_port >> 8);
  private_data[kPortAt + 1] = static_cast<uint8_t>(header.source_port);
  Store(header.source, header.ip_version, private_data.data() + kSourceAt);
  Store(header.destination, header.ip_version, private_data.data() + kDestinationAt);
}

}  // namespace rdmaemu::wire
