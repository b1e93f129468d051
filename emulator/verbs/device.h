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

// An address of a host. `on_wire` false: only this host can reach the address.
struct HostAddress {
  NetAddress address;
  uint32_t link_mtu_bytes = 1500;  // of the interface: bounds the path MTU, as in rxe_set_mtu
  uint32_t interface_index = 0;
  bool on_wire = true;
  uint8_t prefix_bits = 0;          // of the network, counted as in NetPrefix; 0: NetworkOf chooses
  std::string interface_name = {};  // empty: unknown
};
// Reads "ADDRESS" or "ADDRESS/BITS", as in `ip address add`. BITS is the prefix length of the
// address's network, at least 1. Returns nothing for any other text, and for an address that no
// single host can have.
std::optional<HostAddress> ParseHostAddress(std::string_view text);
// Returns the network of an address, to which the address is a route. An address without a prefix
// is in 127.0.0.0/8 or ::1/128 (loopback), in a /24 (other IPv4 addresses) or in a /64 (other IPv6
// addresses).
NetPrefix NetworkOf(const HostAddress& own);

struct DeviceConfig {
  std::string name;  // "rxe0"
  Profile profile;
  std::vector<HostAddress> addresses;
  uint64_t node_guid = 0;  // big endian; 0: made from the addresses, or random without addresses
};

// X(name): a counter of a port since its device was added, in the order and with the names of
// rdma_rxe (rxe_hw_counters.c). docs/filesystem.md explains each counter.
#define RDMAEMU_PORT_COUNTERS(X) \
  X(sent_pkts)                   \
  X(rcvd_pkts)                   \
  X(duplicate_request)           \
  X(out_of_seq_request)          \
  X(rcvd_rnr_err)                \
  X(send_rnr_err)                \
  X(rcvd_seq_err)                \
  X(ack_deferred)                \
  X(retry_exceeded_err)          \
  X(retry_rnr_exceeded_err)      \
  X(completer_retry_err)         \
  X(send_err)                    \
  X(link_downed)                 \
  X(rdma_sends)                  \
  X(rdma_recvs)

struct PortCounters {
#define RDMAEMU_PORT_COUNTER(name) uint64_t name = 0;
  RDMAEMU_PORT_COUNTERS(RDMAEMU_PORT_COUNTER)
#undef RDMAEMU_PORT_COUNTER
};

// X(name): messages of connection management by kind, in the order of wire::CmBody, with the names
// of the kernel (cm.c, counter_group). LAP and APR are not used.
#define RDMAEMU_CM_COUNTERS(X) \
  X(req)                       \
  X(mra)                       \
  X(rej)                       \
  X(rep)                       \
  X(rtu)                       \
  X(dreq)                      \
  X(drep)                      \
  X(sidr_req)                  \
  X(sidr_rep)                  \
  X(lap)                       \
  X(apr)

struct CmMessageCounts {
#define RDMAEMU_CM_COUNTER(name) uint64_t name = 0;
  RDMAEMU_CM_COUNTERS(RDMAEMU_CM_COUNTER)
#undef RDMAEMU_CM_COUNTER
};

struct Device {
  static constexpr uint8_t kPort = 1;  // rxe's devices have one port
  static constexpr uint16_t kDefaultPkey = 0xffff;
  static constexpr uint32_t kMostBadPkeys = 0xffff;  // bad_pkey_cntr stops counting here

  std::string name;
  uint32_t index;  // from AddDevice; a device that is removed and added again has a new one
  Profile profile;
  std::vector<HostAddress> addresses;
  // Entry 0 is the link-local address made from the first IPv4 address. Each address has one of the
  // next entries. The entry of a removed address is zero until a new address takes the entry.
  std::vector<NetAddress> gids;
  uint64_t node_guid;  // big endian
  // The port's P_Key table, of the profile's pkey_tbl_len entries. 0: an entry without a partition.
  std::vector<uint16_t> pkeys;
  PortCounters counters;
  CmMessageCounts cm_sent, cm_received;
  uint32_t bad_pkeys = 0;  // bad_pkey_cntr: packets whose partition differs from their queue pair's
  ibv_mtu active_mtu;
  ibv_port_state port_state = IBV_PORT_ACTIVE;
  // False: the device was removed and exists only for contexts that are still open.
  bool present = true;

  // True when the device is present and its port is up, so that it sends and receives packets.
  bool Carries() const { return present && port_state == IBV_PORT_ACTIVE; }
  // Returns the P_Key of a queue pair with this pkey_index. An index beyond the table selects the
  // first entry, because some devices do not check the index (rxe_qp_from_attr). A device without a
  // table has the default P_Key.
  uint16_t PkeyAt(uint16_t index) const {
    if (index < pkeys.size()) return pkeys[index];
    return pkeys.empty() ? kDefaultPkey : pkeys[0];
  }
  // True when the port's link layer is InfiniBand. The port then has a LID, and an address vector
  // may have a destination LID and no GRH.
  bool has_lids() const { return profile.port.link_layer == IBV_LINK_LAYER_INFINIBAND; }
  // Returns the port's LID, made from the address that also makes entry 0 of `gids`. 0: none.
  uint16_t Lid() const;
  // Returns the index of the partition's entry, of a full member if there is one
  // (ib_find_cached_pkey).
  std::optional<uint16_t> FindPkey(uint16_t pkey) const;
  bool Owns(const NetAddress& address) const {
    for (const NetAddress& own : gids) {
      if (own == address) return true;
    }
    return false;
  }
};

// Returns the MAC of the emulated port with this node GUID, padded to a GID as RNICs show it
// (siw_query_gid). The MAC is 02:00 and the IPv4 address, and the node GUID is its EUI-64.
ibv_gid MacGidOf(uint64_t node_guid_be);

// The unicast LIDs of a subnet (IBTA 4.1.1).
inline constexpr uint16_t kLeastLid = 1, kMostLid = 0xbfff;
// Returns the LID of an IPv4 address, its low 16 bits. Returns 0 for IPv6, and for bits that are no
// unicast LID.
uint16_t LidOf(const NetAddress& address);

// True for 1 to 63 letters, digits, '-' and '_' (IB_DEVICE_NAME_MAX).
bool IsDeviceName(std::string_view name);
// True when one host can have the address: it is no wildcard, multicast or broadcast address.
bool IsHostAddress(const NetAddress& address);

// Returns the active MTU of an interface's MTU, as rxe_set_mtu does. Subtracts 80 bytes of headers
// and rounds down to an IB MTU, at least 256 and at most `max_mtu`.
ibv_mtu ActiveMtu(uint32_t link_mtu_bytes, ibv_mtu max_mtu);
// Returns 256 to 4096 bytes, or 0 for a value that is no MTU.
constexpr uint32_t MtuBytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

}  // namespace rdmaemu
