// The ports of a host's RDMA CM port spaces (TCP, UDP, IPOIB, IB), shared by all its programs:
// which ids hold a port, and who may join them (cma_get_port, cma_check_port, cma_port_is_unique).
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

// What an id shows to the others on its port. It belongs to the id, which may change it while bound
// (a wildcard source becomes an address when the destination is resolved).
struct PortBinding {
  uint32_t id = 0;
  SocketAddress source, destination;
  bool reuse_address = false;
  bool af_only = false;  // an IPv6 wildcard leaves IPv4 alone
};

class PortSpaces {
 public:
  // net.ipv4.ip_local_port_range's default.
  static constexpr uint16_t kFirstEphemeral = 32768, kLastEphemeral = 60999;

  // Takes source.port, or writes an ephemeral one there when it is 0. The binding must stay where
  // it is until Release. EADDRINUSE: the same address; EADDRNOTAVAIL: a wildcard is involved, or no
  // ephemeral port is left.
  Status Bind(uint16_t port_space, PortBinding& binding, Random& random);
  // Whether the binding could hold its port without REUSEADDR: what a listen asks.
  Status CheckExclusive(uint16_t port_space, const PortBinding& binding) const;
  void Release(uint16_t port_space, const PortBinding& binding);
  // Who holds a port, in the order they took it.
  std::span<const PortBinding* const> Owners(uint16_t port_space, uint16_t port) const;

 private:
  using Key = std::pair<uint16_t, uint16_t>;  // port space, port
  Status BindEphemeral(uint16_t port_space, PortBinding& binding, Random& random);
  Status Check(const Key& key, const PortBinding& binding, bool reuse) const;
  bool IsUnique(const Key& key, const PortBinding& binding) const;

  std::map<Key, std::vector<const PortBinding*>> owners_;
  uint16_t last_ephemeral_ = 0;  // not handed out twice in a row
};

}  // namespace rdmaemu::cm
