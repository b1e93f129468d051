// A socket address of an RDMA CM id: a family, an IP address or a GID, and a port. Wildcards keep
// their family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"

namespace rdmaemu::cm {

struct SocketAddress {
  uint16_t family = 0;     // AF_INET, AF_INET6 or AF_IB; 0: none yet
  NetAddress address;      // of AF_IB: a GID
  uint16_t port = 0;       // host order; of AF_IB: the last 16 bits of the service id
  uint32_t flow_info = 0;  // as in sockaddr_in6
  uint32_t scope_id = 0;

  // The next members belong to AF_IB only, in host order (sockaddr_ib).
  uint16_t pkey = 0;
  uint64_t service_id = 0, service_id_mask = 0;
  // The address is a loopback address without a device, which RDMA CM treats as a wildcard.
  bool is_loopback = false;

  bool IsAny() const;  // cma_any_addr
  bool IsNone() const { return family == 0; }
};

// Returns the size in bytes of the family's sockaddr, including AF_IB. Returns 0 for a family that
// RDMA CM does not support (rdma_addr_size).
size_t SocketAddressBytes(uint16_t family);
// Returns the family of a sockaddr of any kind, 0 when it has none.
uint16_t FamilyOf(std::span<const std::byte> sockaddr);
// Returns EINVAL for a family that RDMA CM does not support, or for a span that is too short. For
// family 0, returns an address for which IsNone is true.
Result<SocketAddress> ParseSocketAddress(std::span<const std::byte> sockaddr);
// Writes SocketAddressBytes(address.family) bytes and returns their number. Writes nothing for an
// address without a family.
size_t EmitSocketAddress(const SocketAddress& address, std::span<std::byte> sockaddr);

}  // namespace rdmaemu::cm
