// A device of a host: its profile, its addresses as a GID table, and the state of its one port.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/net_prefix.h"
#include "emulator/verbs/profile.h"

namespace rdmaemu {

// An address of a host. `on_wire` false: other hosts cannot reach it; it answers inside only.
struct HostAddress {
  NetAddress address;
  uint32_t link_mtu_bytes = 1500;  // of its interface: bounds the path MTU, as rxe_set_mtu does
  uint32_t interface_index = 0;
  bool on_wire = true;
  uint8_t prefix_bits = 0;  // of its network, as NetPrefix counts them; 0: NetworkOf chooses
};
// Reads "ADDRESS" or "ADDRESS/BITS", as in `ip address add`: BITS are the prefix of the address's
// network, at least 1. Empty: the text is something else, or not the address of one host.
std::optional<HostAddress> ParseHostAddress(std::string_view text);
// The network of an address, to which the address is a route. An address without a prefix is in
// 127.0.0.0/8 or ::1/128 (loopback), in a /24 (other IPv4 addresses) or in a /64 (other IPv6 ones).
NetPrefix NetworkOf(const HostAddress& own);

struct DeviceConfig {
  std::string name;  // "rxe0"
  Profile profile;
  std::vector<HostAddress> addresses;
  uint64_t node_guid = 0;  // big endian; 0: made from the addresses, or drawn where there is none
};

struct Device {
  static constexpr uint8_t kPort = 1;  // rxe's devices have one port
  static constexpr uint16_t kDefaultPkey = 0xffff;
  static constexpr uint32_t kMostBadPkeys = 0xffff;  // where bad_pkey_cntr stays

  std::string name;
  uint32_t index;  // of AddDevice; a device that was removed and returns has a new one
  Profile profile;
  std::vector<HostAddress> addresses;
  // Entry 0 is the link-local address made from the first IPv4 address; then one an address. An
  // entry whose address has gone is zero, until the next new address takes it.
  std::vector<NetAddress> gids;
  uint64_t node_guid;  // big endian
  // The port's P_Key table, as long as the profile's pkey_tbl_len; 0: an entry without partition.
  std::vector<uint16_t> pkeys;
  uint32_t bad_pkeys = 0;  // bad_pkey_cntr: packets of another partition than their queue pair's
  ibv_mtu active_mtu;
  ibv_port_state port_state = IBV_PORT_ACTIVE;
  // False: removed, and here for the contexts alone that are still open.
  bool present = true;

  // Packets pass: it is there and its port is up.
  bool Carries() const { return present && port_state == IBV_PORT_ACTIVE; }
  // Of a queue pair with this index. Where the device does not check it (rxe_qp_from_attr), one
  // beyond the table stands for the first entry; a device without a table has the default one.
  uint16_t PkeyAt(uint16_t index) const {
    if (index < pkeys.size()) return pkeys[index];
    return pkeys.empty() ? kDefaultPkey : pkeys[0];
  }
  // ib_find_cached_pkey: the index of the partition's entry, of a full member if there is one.
  std::optional<uint16_t> FindPkey(uint16_t pkey) const;
  bool Owns(const NetAddress& address) const {
    for (const NetAddress& own : gids) {
      if (own == address) return true;
    }
    return false;
  }
};

// The MAC of an emulated port (02:00 and its IPv4 address) whose EUI-64 is this node GUID, padded
// to a GID as RNICs show it (siw_query_gid).
ibv_gid MacGidOf(uint64_t node_guid_be);

// 1 to 63 letters, digits, '-' and '_' (IB_DEVICE_NAME_MAX).
bool IsDeviceName(std::string_view name);
// Can be one host's: neither a wildcard nor multicast nor broadcast.
bool IsHostAddress(const NetAddress& address);

// What rxe_set_mtu makes of an interface's MTU: less 80 bytes of headers, rounded down to an IB
// MTU, at least 256, at most `max_mtu`.
ibv_mtu ActiveMtu(uint32_t link_mtu_bytes, ibv_mtu max_mtu);
// 256 to 4096; 0 for a value that is no MTU.
constexpr uint32_t MtuBytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

}  // namespace rdmaemu
