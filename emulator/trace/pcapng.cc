#include "emulator/trace/pcapng.h"

#include <array>
#include <cstring>

#include "emulator/wire/byte_order.h"

namespace rdmaemu::trace {
namespace {

using wire::StoreBig;

constexpr uint32_t kSectionHeaderBlock = 0x0A0D0D0A;
constexpr uint32_t kInterfaceBlock = 1;
constexpr uint32_t kEnhancedPacketBlock = 6;
constexpr uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr uint16_t kLinkTypeRaw = 101;
constexpr uint16_t kOptionEnd = 0, kOptionInterfaceName = 2, kOptionUserApplication = 4,
                   kOptionTimestampResolution = 9;
constexpr char kNanoseconds = 9;  // if_tsresol: a power of ten
constexpr size_t kBlockTypeBytes = 4, kBlockLengthBytes = 4;
constexpr size_t kMaxNameBytes = 255;

constexpr size_t kUdpBytes = 8, kIpv4Bytes = 20, kIpv6Bytes = 40;
constexpr uint8_t kProtocolUdp = 17, kTtl = 64;

// Appends a number in little-endian order, which the section's byte-order magic declares.
template <class T>
void AppendLittle(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out += static_cast<char>(static_cast<uint64_t>(value) >> 8 * i & 0xff);
  }
}

void PadToFour(std::string& out, size_t written) { out.append((4 - written % 4) % 4, '\0'); }

void AppendOption(uint16_t code, std::string_view value, std::string& out) {
  AppendLittle(code, out);
  AppendLittle(static_cast<uint16_t>(value.size()), out);
  out += value;
  PadToFour(out, value.size());
}

// Appends a block: its type, its length, the body, and its length again.
void AppendBlock(uint32_t type, std::string_view body, std::string& out) {
  const auto length = static_cast<uint32_t>(kBlockTypeBytes + 2 * kBlockLengthBytes + body.size());
  AppendLittle(type, out);
  AppendLittle(length, out);
  out += body;
  AppendLittle(length, out);
}

// Adds big-endian 16-bit words to the running sum of an internet checksum. A zero byte pads an odd
// length.
uint32_t Sum(std::span<const std::byte> bytes, uint32_t sum) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    sum += static_cast<uint32_t>(bytes[i]) << 8 | static_cast<uint32_t>(bytes[i + 1]);
  }
  if (bytes.size() % 2 != 0) sum += static_cast<uint32_t>(bytes.back()) << 8;
  return sum;
}
uint16_t Fold(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// Writes IP and UDP headers to `out` and returns their length.
size_t PutHeaders(const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
                  std::array<std::byte, kIpv6Bytes + kUdpBytes>& out) {
  const bool ipv4 = flow.destination.IsIpv4();
  const size_t udp_length = kUdpBytes + udp_payload.size();
  const size_t ip_bytes = ipv4 ? kIpv4Bytes : kIpv6Bytes;
  std::byte* const ip = out.data();
  std::byte* const udp = ip + ip_bytes;
  const size_t address_bytes = ipv4 ? 4 : 16;
  std::byte* const addresses = udp - 2 * address_bytes;
  std::memcpy(addresses, flow.source.bytes.data() + 16 - address_bytes, address_bytes);
  std::memcpy(addresses + address_bytes, flow.destination.bytes.data() + 16 - address_bytes,
              address_bytes);
  if (ipv4) {
    StoreBig<2>(ip, 0x4500);
    StoreBig<2>(ip + 2, kIpv4Bytes + udp_length);
    StoreBig<4>(ip + 4, 0x4000);  // ID 0, DF: the values in the ICRC
    StoreBig<2>(ip + 8, kTtl << 8 | kProtocolUdp);
    StoreBig<2>(ip + 10, 0);
    StoreBig<2>(ip + 10, Fold(Sum({ip, kIpv4Bytes}, 0)));
  } else {
    StoreBig<4>(ip, 0x60000000);
    StoreBig<2>(ip + 4, udp_length);
    StoreBig<2>(ip + 6, kProtocolUdp << 8 | kTtl);
  }
  StoreBig<2>(udp, flow.source_port);
  StoreBig<2>(udp + 2, flow.destination_port);
  StoreBig<2>(udp + 4, udp_length);
  StoreBig<2>(udp + 6, 0);
  // Pseudo header (addresses, protocol, length), UDP header, payload.
  uint32_t sum = kProtocolUdp + static_cast<uint32_t>(udp_length);
  sum = Sum({addresses, 2 * address_bytes + kUdpBytes}, sum);
  const uint16_t checksum = Fold(Sum(udp_payload, sum));
  StoreBig<2>(udp + 6, checksum != 0 ? checksum : 0xffff);  // 0 means "no checksum"
  return ip_bytes + kUdpBytes;
}

}  // namespace

PcapngWriter::PcapngWriter(Duration wall_offset, std::string_view host)
    : wall_offset_(wall_offset), host_(host.substr(0, kMaxNameBytes)) {}

void PcapngWriter::AppendStart(std::string& out) const {
  std::string body;
  AppendLittle(kByteOrderMagic, body);
  AppendLittle(uint16_t{1}, body);  // version 1.0
  AppendLittle(uint16_t{0}, body);
  AppendLittle(int64_t{-1}, body);  // section length: unspecified
  AppendOption(kOptionUserApplication, "rdmaemu", body);
  AppendOption(kOptionEnd, {}, body);
  AppendBlock(kSectionHeaderBlock, body, out);

  body.clear();
  AppendLittle(kLinkTypeRaw, body);
  AppendLittle(uint16_t{0}, body);
  AppendLittle(uint32_t{0}, body);  // snap length: no limit
  AppendOption(kOptionInterfaceName, host_, body);
  AppendOption(kOptionTimestampResolution, {&kNanoseconds, 1}, body);
  AppendOption(kOptionEnd, {}, body);
  AppendBlock(kInterfaceBlock, body, out);
}

void PcapngWriter::AppendPacket(Time time, const wire::UdpFlow& flow,
                                std::span<const std::byte> udp_payload, std::string& out) const {
  if (udp_payload.size() > kMaxUdpPayloadBytes) return;
  std::array<std::byte, kIpv6Bytes + kUdpBytes> headers;
  const size_t header_bytes = PutHeaders(flow, udp_payload, headers);
  const auto packet_bytes = static_cast<uint32_t>(header_bytes + udp_payload.size());
  const auto timestamp = static_cast<uint64_t>((time.time_since_epoch() + wall_offset_).count());

  const size_t padding = (4 - packet_bytes % 4) % 4;
  const auto block_bytes = static_cast<uint32_t>(kBlockTypeBytes + 2 * kBlockLengthBytes +
                                                 5 * sizeof(uint32_t) + packet_bytes + padding);
  AppendLittle(kEnhancedPacketBlock, out);
  AppendLittle(block_bytes, out);
  AppendLittle(uint32_t{0}, out);  // interface
  AppendLittle(static_cast<uint32_t>(timestamp >> 32), out);
  AppendLittle(static_cast<uint32_t>(timestamp), out);
  AppendLittle(packet_bytes, out);  // captured
  AppendLittle(packet_bytes, out);  // original
  out.append(reinterpret_cast<const char*>(headers.data()), header_bytes);
  out.append(reinterpret_cast<const char*>(udp_payload.data()), udp_payload.size());
  out.append(padding, '\0');
  AppendLittle(block_bytes, out);
}

}  // namespace rdmaemu::trace
