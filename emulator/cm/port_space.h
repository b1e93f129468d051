// The ports of a host's RDMA CM port spaces (TCP, UDP, IPOIB, IB), which all its programs share.
// PortSpaces records which ids hold a port, and decides which ids may share a port (cma_get_port,
// cma_check_port, cma_port_is_unique).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/cm/socket_address.h"

namespace rdmaemu::cm {

// The addresses of an id. Other ids on the same port are checked against them. The id owns the
// binding and may change it while bound. For example, resolving the destination replaces a wildcard
// source by an address.
struct PortBinding {
  uint32_t id = 0;
  SocketAddress source, destination;
  bool reuse_address = false;
  bool af_only = false;  // an IPv6 wildcard does not conflict with IPv4
};

class PortSpaces {
 public:
  // The default of net.ipv4.ip_local_port_range.
  static constexpr uint16_t kFirstEphemeral = 32768, kLastEphemeral = 60999;

  // Binds source.port. When source.port is 0, chooses an ephemeral port and writes its number
  // there. The binding must keep its address in memory until Release. Returns EADDRINUSE for the
  // same address. Returns EADDRNOTAVAIL when a wildcard is involved, or when no ephemeral port is
  // free.
  Status Bind(uint16_t port_space, PortBinding& binding, Random& random);
  // Checks whether the binding could hold its port without REUSEADDR, as a listen requires.
  Status CheckExclusive(uint16_t port_space, const PortBinding& binding) const;
  void Release(uint16_t port_space, const PortBinding& binding);
  // Returns the bindings of a port, in the order in which they were bound.
  std::span<const PortBinding* const> Owners(uint16_t port_space, uint16_t port) const;

 private:
  using Key = std::pair<uint16_t, uint16_t>;  // port space, port
  Status BindEphemeral(uint16_t port_space, PortBinding& binding, Random& random);
  Status Check(const Key& key, const PortBinding& binding, bool reuse) const;
  bool IsUnique(const Key& key, const PortBinding& binding) const;

  std::map<Key, std::vector<const PortBinding*>> owners_;
  uint16_t last_ephemeral_ = 0;  // not used twice in a row
};

}  // namespace rdmaemu::cm
