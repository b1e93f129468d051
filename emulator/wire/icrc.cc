#include "emulator/wire/icrc.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <isa-l/crc.h>

#include <array>
#include <cstring>

#include "emulator/wire/byte_order.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;  // 0x04C11DB7 reflected: bit 31 is x^0
// The register after eight bytes of ones, in place of the masked LRH and GRH of InfiniBand.
// isa-l takes and returns the inverted register, as zlib does.
constexpr uint32_t kSeed = ~0xdebb20e3u;

constexpr size_t kIcrcBthBytes = 12;
constexpr size_t kCongestionByte = 4;  // of the BTH
constexpr size_t kUdpBytes = 8;
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kBytesAfterIpv4Id = kIpv4Bytes - 6 + kUdpBytes;  // without the UDP payload
constexpr size_t kMaxPadBytes = 3;
constexpr size_t kMaxBodyBytes = kMaxHeaderBytes + kMaxMtuBytes + kMaxPadBytes;
constexpr uint8_t kProtocolUdp = 17;

constexpr uint32_t DivideByX(uint32_t value) {
  return (value >> 31) != 0 ? (value ^ kPolynomial) << 1 | 1 : value << 1;
}
constexpr uint32_t MultiplyByX(uint32_t value) {
  return (value >> 1) ^ (kPolynomial & (0u - (value & 1)));
}
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & (0u - (a >> bit & 1));
    b = MultiplyByX(b);
  }
  return product;
}

// kInverse[k] = x^(-8k). It removes the effect of the k following bytes from a CRC difference.
constexpr size_t kInverseEntries = kBytesAfterIpv4Id + kMaxBodyBytes + 2 + 1;
constexpr std::array<uint32_t, kInverseEntries> kInverse = [] {
  std::array<uint32_t, kInverseEntries> table{};
  table[0] = 0x80000000;
  for (size_t k = 1; k < table.size(); ++k) {
    uint32_t value = table[k - 1];
    for (int bit = 0; bit < 8; ++bit) value = DivideByX(value);
    table[k] = value;
  }
  return table;
}();

// isa-l's AVX-512 code leaves the upper halves of the vector registers in use. On some processors
// (measured: Sapphire Rapids) the next SSE instruction then takes more than 100 ns, which is five
// times as long as the CRC of 1 KiB.
#if defined(__x86_64__)
__attribute__((target("avx"))) void ClearUpperHalves() { _mm256_zeroupper(); }
void EndVectorCode() {
  if (__builtin_cpu_supports("avx")) ClearUpperHalves();
}
#else
void EndVectorCode() {}
#endif

uint32_t Continue(uint32_t crc, const std::byte* data, size_t bytes) {
  // isa-l only reads, but its prototype has no const.
  const uint32_t result = crc32_gzip_refl(
      crc, const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data)), bytes);
  EndVectorCode();
  return result;
}

// Writes the masked IP header to `out` and returns its length.
size_t PutIpHeader(const UdpFlow& flow, size_t udp_bytes, uint16_t ip_id, std::byte* out) {
  if (flow.destination.IsIpv4()) {
    constexpr uint16_t kDontFragment = 0x4000;
    StoreBig<2>(out, 0x45ff);  // version 4, five words; TOS masked
    StoreBig<2>(out + 2, kIpv4Bytes + udp_bytes);
    StoreBig<2>(out + 4, ip_id);
    StoreBig<2>(out + 6, kDontFragment);
    StoreBig<2>(out + 8, 0xff00 | kProtocolUdp);  // TTL masked
    StoreBig<2>(out + 10, 0xffff);                // checksum masked
    std::memcpy(out + 12, flow.source.bytes.data() + 12, 4);
    std::memcpy(out + 16, flow.destination.bytes.data() + 12, 4);
    return kIpv4Bytes;
  }
  StoreBig<4>(out, 0x6fffffff);  // traffic class and flow label masked
  StoreBig<2>(out + 4, udp_bytes);
  StoreBig<2>(out + 6, kProtocolUdp << 8 | 0xff);  // hop limit masked
  std::memcpy(out + 8, flow.source.bytes.data(), 16);
  std::memcpy(out + 24, flow.destination.bytes.data(), 16);
  return kIpv6Bytes;
}

// Both functions take a UDP payload with its ICRC.
std::span<const std::byte> BodyOf(std::span<const std::byte> udp_payload) {
  return udp_payload.first(udp_payload.size() - kIcrcBytes);
}
bool HasPacketSize(std::span<const std::byte> udp_payload) {
  return udp_payload.size() >= kIcrcBthBytes + kIcrcBytes &&
         udp_payload.size() <= kMaxBodyBytes + kIcrcBytes;
}

// The ICRC is little-endian on the wire.
uint32_t IcrcIn(std::span<const std::byte> udp_payload) {
  const std::byte* const p = udp_payload.data() + udp_payload.size() - kIcrcBytes;
  uint32_t icrc = 0;
  for (size_t i = 0; i < kIcrcBytes; ++i) icrc |= static_cast<uint32_t>(p[i]) << 8 * i;
  return icrc;
}
void PutIcrc(uint32_t icrc, std::span<std::byte> udp_payload) {
  std::byte* const p = udp_payload.data() + udp_payload.size() - kIcrcBytes;
  for (size_t i = 0; i < kIcrcBytes; ++i) p[i] = static_cast<std::byte>(icrc >> 8 * i);
}

// `difference` is that of the received ICRC and of the ICRC for ID 0.
std::optional<uint16_t> IdThatExplains(uint32_t difference, const UdpFlow& flow,
                                       size_t body_bytes) {
  if (difference == 0) return 0;
  if (!flow.destination.IsIpv4()) return std::nullopt;
  const uint32_t id = Multiply(difference, kInverse[kBytesAfterIpv4Id + body_bytes + 2]);
  if ((id & 0xffff0000) != 0) return std::nullopt;
  return static_cast<uint16_t>((id & 0xff) << 8 | id >> 8);
}

}  // namespace

uint32_t Icrc(const UdpFlow& flow, std::span<const std::byte> body, uint16_t ip_id) {
  if (body.size() < kIcrcBthBytes) return 0;
  std::array<std::byte, kIpv6Bytes + kUdpBytes + kIcrcBthBytes> head;
  const size_t udp_bytes = kUdpBytes + body.size() + kIcrcBytes;
  std::byte* p = head.data() + PutIpHeader(flow, udp_bytes, ip_id, head.data());
  StoreBig<2>(p, flow.source_port);
  StoreBig<2>(p + 2, flow.destination_port);
  StoreBig<2>(p + 4, udp_bytes);
  StoreBig<2>(p + 6, 0xffff);  // checksum masked
  std::memcpy(p + kUdpBytes, body.data(), kIcrcBthBytes);
  p[kUdpBytes + kCongestionByte] = std::byte{0xff};  // FECN, BECN and reserved bits masked
  const size_t head_bytes = static_cast<size_t>(p - head.data()) + kUdpBytes + kIcrcBthBytes;
  const uint32_t crc = Continue(kSeed, head.data(), head_bytes);
  return Continue(crc, body.data() + kIcrcBthBytes, body.size() - kIcrcBthBytes);
}

std::optional<uint16_t> VerifyIcrc(const UdpFlow& flow, std::span<const std::byte> udp_payload) {
  if (!HasPacketSize(udp_payload)) return std::nullopt;
  const auto body = BodyOf(udp_payload);
  return IdThatExplains(IcrcIn(udp_payload) ^ Icrc(flow, body), flow, body.size());
}

void SealPacket(const UdpFlow& flow, std::span<std::byte> udp_payload) {
  if (udp_payload.size() < kIcrcBthBytes + kIcrcBytes) return;
  PutIcrc(Icrc(flow, BodyOf(udp_payload)), udp_payload);
}

uint32_t IcrcCache::Icrc(const UdpFlow& flow, std::span<const std::byte> body) {
  const std::byte congestion = body[kCongestionByte];
  const size_t index =
      body.size() / 4 + flow.source.bytes.back() * 3u + flow.destination.bytes.back() * 5u;
  Entry& entry = entries_[index % kEntries];
  const uint32_t own = Continue(kSeed, body.data(), body.size());
  if (entry.body_bytes != body.size() || entry.congestion != congestion || entry.flow != flow) {
    entry = {flow, body.size(), congestion, own ^ wire::Icrc(flow, body)};
  }
  return own ^ entry.share;
}

std::optional<uint16_t> IcrcCache::Verify(const UdpFlow& flow,
                                          std::span<const std::byte> udp_payload) {
  if (!HasPacketSize(udp_payload)) return std::nullopt;
  const auto body = BodyOf(udp_payload);
  return IdThatExplains(IcrcIn(udp_payload) ^ Icrc(flow, body), flow, body.size());
}

void IcrcCache::Seal(const UdpFlow& flow, std::span<std::byte> udp_payload) {
  if (udp_payload.size() < kIcrcBthBytes + kIcrcBytes) return;
  PutIcrc(Icrc(flow, BodyOf(udp_payload)), udp_payload);
}

}  // namespace rdmaemu::wire
