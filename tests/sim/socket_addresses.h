// Socket addresses in the form of RDMA CM calls.
#pragma once

#include <span>

#include "emulator/base/uapi.h"
#include "emulator/cm/socket_address.h"

namespace rdmaemu::sim {

// Returns the size of the filled address.
inline uint16_t FillAddress(__kernel_sockaddr_storage& out, const NetAddress& address,
                            uint16_t port) {
  const uint16_t family = address.IsIpv4() ? AF_INET : AF_INET6;
  return static_cast<uint16_t>(cm::EmitSocketAddress({family, address, port, 0, 0},
                                                     std::as_writable_bytes(std::span(&out, 1))));
}
// Returns the wildcard of the address's family.
inline NetAddress AnyOf(const NetAddress& address) {
  return address.IsIpv4() ? NetAddress::Ipv4(0) : NetAddress{};
}

}  // namespace rdmaemu::sim
