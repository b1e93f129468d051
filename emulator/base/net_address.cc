#include "emulator/base/net_address.h"

#include <arpa/inet.h>

#include <algorithm>

namespace rdmaemu {
namespace {

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

NetAddress NetAddress::Ipv4(uint32_t host_order) {
  NetAddress address;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.bytes.begin());
  for (int i = 0; i < 4; i++)
    address.bytes[12 + i] = static_cast<uint8_t>(host_order >> (24 - 8 * i));
  return address;
}

NetAddress NetAddress::FromGid(const ibv_gid& gid) {
  NetAddress address;
  std::copy(std::begin(gid.raw), std::end(gid.raw), address.bytes.begin());
  return address;
}

std::optional<NetAddress> NetAddress::Parse(std::string_view text) {
  const std::string copy(text);
  in_addr ipv4{};
  if (inet_pton(AF_INET, copy.c_str(), &ipv4) == 1) return Ipv4(ntohl(ipv4.s_addr));
  NetAddress address;
  if (inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

ibv_gid NetAddress::ToGid() const {
  ibv_gid gid{};
  std::copy(bytes.begin(), bytes.end(), gid.raw);
  return gid;
}

bool NetAddress::IsIpv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool NetAddress::IsZero() const { return *this == NetAddress{}; }

bool NetAddress::IsLoopback() const {
  return IsIpv4() ? ToIpv4() >> 24 == 127 : *this == *Parse("::1");
}
bool NetAddress::IsLinkLocal() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

bool NetAddress::IsMulticast() const {
  return IsIpv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff;
}

uint32_t NetAddress::ToIpv4() const {
  return static_cast<uint32_t>(bytes[12]) << 24 | static_cast<uint32_t>(bytes[13]) << 16 |
         static_cast<uint32_t>(bytes[14]) << 8 | bytes[15];
}

std::string NetAddress::ToString() const {
  char text[INET6_ADDRSTRLEN];
  if (IsIpv4()) return inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
  return inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
}

// The EUI-64 of the MAC 02:00:a:b:c:d with the universal bit flipped: 0000:aaff:febb:ccdd.
NetAddress LinkLocalOf(const NetAddress& ipv4) {
  NetAddress address;
  address.bytes = {0xfe,
                   0x80,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   0,
                   ipv4.bytes[12],
                   0xff,
                   0xfe,
                   ipv4.bytes[13],
                   ipv4.bytes[14],
                   ipv4.bytes[15]};
  return address;
}

std::optional<NetAddress> AddressOfLinkLocal(const NetAddress& link_local) {
  if (!link_local.IsLinkLocal()) return std::nullopt;
  const auto& b = link_local.bytes;
  const NetAddress ipv4 =
      NetAddress::Ipv4(static_cast<uint32_t>(b[10]) << 24 | static_cast<uint32_t>(b[13]) << 16 |
                       static_cast<uint32_t>(b[14]) << 8 | b[15]);
  if (LinkLocalOf(ipv4) != link_local) return std::nullopt;
  return ipv4;
}

}  // namespace rdmaemu
