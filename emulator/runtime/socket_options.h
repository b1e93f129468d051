// Options of the sockets that carry RoCEv2.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/base/net_address.h"

namespace rdmaemu::runtime {

inline constexpr size_t kSocketBufferBytes = size_t{8} << 20;  // requested size; rmem_max limits it

template <class T>
bool SetOption(int fd, int level, int name, const T& value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

inline void SetBufferSizes(int fd) {
  const int bytes = kSocketBufferBytes;
  // FORCE needs CAP_NET_ADMIN. Without it rmem_max and wmem_max are the limit.
  if (!SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    SetOption(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  if (!SetOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

// Converts an IPv4 or IPv6 socket address. `port` is in host order.
inline NetAddress AddressFrom(const sockaddr_storage& storage, uint16_t& port) {
  if (storage.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(storage);
    port = ntohs(ipv4.sin_port);
    return NetAddress::Ipv4(ntohl(ipv4.sin_addr.s_addr));
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(storage);
  port = ntohs(ipv6.sin6_port);
  NetAddress address;
  std::memcpy(address.bytes.data(), &ipv6.sin6_addr, address.bytes.size());
  return address;
}

// Returns how many datagrams the socket has dropped since it was opened, modulo 2^32. Reasons are a
// full receive queue or a wrong checksum. SO_RXQ_OVFL reports the same number.
inline uint32_t SocketDrops(int fd) {
  constexpr size_t kDrops = 8;  // SK_MEMINFO_DROPS of <linux/sock_diag.h>
  std::array<uint32_t, kDrops + 1> memory{};
  socklen_t size = sizeof memory;
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory.data(), &size) != 0) return 0;
  return size == sizeof memory ? memory[kDrops] : 0;
}

}  // namespace rdmaemu::runtime
