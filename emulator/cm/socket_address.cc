#include "emulator/cm/socket_address.h"

#include <endian.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <cstring>

#include "emulator/base/uapi.h"

namespace rdmaemu::cm {

bool SocketAddress::IsAny() const {
  if (is_loopback) return true;
  return family == AF_INET ? address == NetAddress::Ipv4(0) : address.IsZero();
}

size_t SocketAddressBytes(uint16_t family) {
  switch (family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case AF_IB:
      return sizeof(sockaddr_ib);
    default:
      return 0;
  }
}

uint16_t FamilyOf(std::span<const std::byte> sockaddr) {
  uint16_t family = 0;
  if (sockaddr.size() >= sizeof family) std::memcpy(&family, sockaddr.data(), sizeof family);
  return family;
}

Result<SocketAddress> ParseSocketAddress(std::span<const std::byte> sockaddr) {
  SocketAddress out;
  out.family = FamilyOf(sockaddr);
  if (out.family == 0) return out;
  const size_t bytes = SocketAddressBytes(out.family);
  if (bytes == 0 || sockaddr.size() < bytes) return Fail(EINVAL);
  if (out.family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, sockaddr.data(), sizeof in);
    out.address = NetAddress::Ipv4(ntohl(in.sin_addr.s_addr));
    out.port = ntohs(in.sin_port);
    return out;
  }
  if (out.family == AF_IB) {
    sockaddr_ib ib;
    std::memcpy(&ib, sockaddr.data(), sizeof ib);
    std::memcpy(out.address.bytes.data(), &ib.sib_addr, out.address.bytes.size());
    out.service_id = be64toh(ib.sib_sid);
    out.service_id_mask = be64toh(ib.sib_sid_mask);
    out.port = static_cast<uint16_t>(out.service_id & out.service_id_mask);
    out.pkey = ntohs(ib.sib_pkey);
    out.flow_info = ib.sib_flowinfo;
    out.scope_id = static_cast<uint32_t>(ib.sib_scope_id);
    return out;
  }
  sockaddr_in6 in6;
  std::memcpy(&in6, sockaddr.data(), sizeof in6);
  std::memcpy(out.address.bytes.data(), &in6.sin6_addr, out.address.bytes.size());
  out.port = ntohs(in6.sin6_port);
  out.flow_info = in6.sin6_flowinfo;
  out.scope_id = in6.sin6_scope_id;
  return out;
}

size_t EmitSocketAddress(const SocketAddress& address, std::span<std::byte> sockaddr) {
  if (address.family == AF_INET && sockaddr.size() >= sizeof(sockaddr_in)) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    in.sin_addr.s_addr = htonl(address.address.ToIpv4());
    std::memcpy(sockaddr.data(), &in, sizeof in);
    return sizeof in;
  }
  if (address.family == AF_INET6 && sockaddr.size() >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in6 = {};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(address.port);
    in6.sin6_flowinfo = address.flow_info;
    in6.sin6_scope_id = address.scope_id;
    std::memcpy(&in6.sin6_addr, address.address.bytes.data(), address.address.bytes.size());
    std::memcpy(sockaddr.data(), &in6, sizeof in6);
    return sizeof in6;
  }
  if (address.family == AF_IB && sockaddr.size() >= sizeof(sockaddr_ib)) {
    constexpr uint64_t kPort = 0xffff;
    sockaddr_ib ib = {};
    ib.sib_family = AF_IB;
    ib.sib_pkey = htons(address.pkey);
    ib.sib_flowinfo = address.flow_info;
    std::memcpy(&ib.sib_addr, address.address.bytes.data(), address.address.bytes.size());
    ib.sib_sid = htobe64((address.service_id & ~kPort) | address.port);
    ib.sib_sid_mask = htobe64(address.service_id_mask);
    ib.sib_scope_id = address.scope_id;
    std::memcpy(sockaddr.data(), &ib, sizeof ib);
    return sizeof ib;
  }
  return 0;
}

}  // namespace rdmaemu::cm
