// An IP address in RoCEv2: 16 bytes that are also the GID (IPv4 as ::ffff:a.b.c.d).
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rdmaemu {

struct NetAddress {
  std::array<uint8_t, 16> bytes{};

  // The comparisons of each packet and call need no call of memcmp.
  friend auto operator<=>(const NetAddress& a, const NetAddress& b) {
    const auto x = a.Words(), y = b.Words();
    return std::pair(be64toh(x[0]), be64toh(x[1])) <=> std::pair(be64toh(y[0]), be64toh(y[1]));
  }
  friend bool operator==(const NetAddress& a, const NetAddress& b) {
    return a.Words() == b.Words();
  }

  static NetAddress Ipv4(uint32_t host_order);
  static NetAddress FromGid(const ibv_gid& gid);
  // Accepts IPv4 ("127.0.0.1") and IPv6 ("::1").
  static std::optional<NetAddress> Parse(std::string_view text);

  ibv_gid ToGid() const;
  bool IsIpv4() const;
  bool IsZero() const;
  bool IsLinkLocal() const;  // fe80::/10
  bool IsLoopback() const;   // 127.0.0.0/8 or ::1
  bool IsMulticast() const;  // 224.0.0.0/4 or ff00::/8
  uint32_t ToIpv4() const;   // host order; only where IsIpv4()
  std::string ToString() const;

 private:
  std::array<uint64_t, 2> Words() const { return std::bit_cast<std::array<uint64_t, 2>>(bytes); }
};

// Converts the IPv4 address of an emulated port to its link-local GID, and back. The port's MAC
// 02:00:a:b:c:d holds the IPv4 address, and the GID is made from the MAC. The GID of entry 0 thus
// gives an address without neighbour discovery. The inverse returns nothing for other link-local
// addresses.
NetAddress LinkLocalOf(const NetAddress& ipv4);
std::optional<NetAddress> AddressOfLinkLocal(const NetAddress& link_local);

}  // namespace rdmaemu

template <>
struct std::hash<rdmaemu::NetAddress> {
  size_t operator()(const rdmaemu::NetAddress& address) const noexcept {
    uint64_t high, low;
    std::memcpy(&high, address.bytes.data(), 8);
    std::memcpy(&low, address.bytes.data() + 8, 8);
    return std::hash<uint64_t>()(high * 0x9E3779B97F4A7C15ull ^ low);
  }
};
