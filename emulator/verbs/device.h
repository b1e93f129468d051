// A device of a host: its profile, its addresses as a GID table, and the state of its one port.
#pragma once

#include <string>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/verbs/profile.h"

namespace rdmaemu {

// An address of a host. `on_wire` false: other hosts cannot reach it; it answers inside only.
struct HostAddress {
  NetAddress address;
  uint32_t link_mtu_bytes = 1500;  // of its interface: bounds the path MTU, as rxe_set_mtu does
  uint32_t interface_index = 0;
  bool on_wire = true;
};
struct DeviceConfig {
  std::string name;  // "rxe0"
  Profile profile;
  std::vector<HostAddress> addresses;
};

struct Device {
  static constexpr uint8_t kPort = 1;  // rxe's devices have one port
  static constexpr uint16_t kPkey = 0xffff;

  std::string name;
  uint32_t index;  // in the order of AddDevice
  Profile profile;
  std::vector<HostAddress> addresses;
  // Entry 0 is the link-local address made from the first IPv4 address; then one an address.
  std::vector<NetAddress> gids;
  uint64_t node_guid;  // big endian
  ibv_mtu active_mtu;
  ibv_port_state port_state = IBV_PORT_ACTIVE;

  // The emulated port's MAC (02:00 and its IPv4 address), padded to a GID as RNICs show it.
  ibv_gid MacGid() const;
  bool Owns(const NetAddress& address) const {
    for (const NetAddress& own : gids) {
      if (own == address) return true;
    }
    return false;
  }
};

// What rxe_set_mtu makes of an interface's MTU: less 80 bytes of headers, rounded down to an IB
// MTU, at least 256, at most `max_mtu`.
ibv_mtu ActiveMtu(uint32_t link_mtu_bytes, ibv_mtu max_mtu);
// 256 to 4096; 0 for a value that is no MTU.
constexpr uint32_t MtuBytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

}  // namespace rdmaemu
