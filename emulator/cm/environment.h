// The four interfaces that connection management needs from its host: addresses and routes, sending
// of messages, multicast groups, and the queue pairs that iw_cm moves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulator/base/id_space.h"
#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/verbs/profile.h"
#include "emulator/verbs/qp_connection.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::cm {

// The device data that connection management uses.
struct CmDevice {
  std::string name;
  uint32_t index;      // ibdev_index
  uint64_t node_guid;  // big endian, as in ibv_device_attr
  uint8_t port = 1;
  ibv_mtu active_mtu;
  uint8_t ack_delay;  // local_ca_ack_delay
  uint8_t max_rd_atom;
  const Profile* profile;
};

// The route of a CM message. `source` is an own address when sending, the peer's when receiving.
struct CmRoute {
  NetAddress source, destination;
  uint8_t traffic_class = 0;
  // The partition of the path, on a port with LIDs. RoCE paths use the default partition.
  uint16_t pkey = wire::kDefaultPkey;
};

// The result of a route lookup (the kernel's rdma_resolve_ip).
struct Reach {
  enum class Kind : uint8_t {
    kNone,    // ENETUNREACH
    kSilent,  // no neighbour ever answers: the address does not resolve
    kFound,
  };
  Kind kind = Kind::kNone;
  NetAddress source = {};  // the own address that reaches the destination; for kFound
};

// The devices and addresses of the host, and the routes of its addresses.
class CmAddresses {
 public:
  virtual ~CmAddresses() = default;
  // Returns the device that owns a local address, nullptr when no device of this host has it.
  virtual const CmDevice* DeviceOf(const NetAddress& local) const = 0;
  virtual std::vector<const CmDevice*> Devices() const = 0;
  // Returns the index of the address in its device's GID table.
  virtual uint8_t GidIndexOf(const NetAddress& local) const = 0;
  // Returns false if the own link-local address is known to be on another interface than the one
  // with this index. sockaddr_in6 calls the index the scope.
  virtual bool IsOnLink(const NetAddress& own, uint32_t scope_id) const {
    (void)own, (void)scope_id;
    return true;
  }
  // Looks the destination up in the host's routes (ip route get). `from` limits the lookup to the
  // routes of the device with this own address, and makes the address the source. `scope_id`: the
  // interface of a link-local destination without `from`. 0: any.
  virtual Reach FindRoute(const NetAddress& destination, const std::optional<NetAddress>& from = {},
                          uint32_t scope_id = 0) const = 0;
  // Returns the own address in the GID's subnet (cma_resolve_ib_dev), or nothing.
  virtual std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) const = 0;
  // Returns entry 0 of the device's GID table, or nothing when there is no such device.
  virtual std::optional<NetAddress> FirstGidOf(const CmDevice& device) const {
    (void)device;
    return std::nullopt;
  }
  // Returns false while the device's port is down.
  virtual bool IsPortUp(uint32_t device_index) const {
    (void)device_index;
    return true;
  }
  // Returns the first entry of the device's P_Key table.
  virtual uint16_t FirstPkeyOf(const CmDevice& device) const {
    (void)device;
    return wire::kDefaultPkey;
  }
  // Returns the index of the partition in the P_Key table of the address's device
  // (ib_find_cached_pkey), or nothing. This default implementation contains only the default
  // partition.
  virtual std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) const {
    (void)local;
    return (pkey & 0x7fff) == 0x7fff ? std::optional<uint16_t>(0) : std::nullopt;
  }
  // Returns true when devices of this host have loopback addresses of this family. In this case
  // other loopback addresses may be peers.
  virtual bool LivesOnLoopback(bool ipv4) const = 0;
  // Returns true for every own address. DeviceOf returns nullptr for an own address without an RDMA
  // device.
  virtual bool IsOwnAddress(const NetAddress& address) const = 0;
};

class CmTransport {
 public:
  virtual ~CmTransport() = default;
  // Sends a message. Returns an errno only when the send itself fails, as for a failed MAD of the
  // kernel. A message lost in flight is no error.
  virtual Status Send(Time now, const CmRoute& route, const wire::CmMessage& message) = 0;
};

class CmGroups {
 public:
  virtual ~CmGroups() = default;
  // JoinGroup makes the device a member of a multicast group on the link of its address `local`.
  // Each JoinGroup needs one LeaveGroup. The device remains a member until the last LeaveGroup.
  // Returns an errno of the network when the first join fails.
  virtual Status JoinGroup(uint32_t device_index, const NetAddress& local,
                           const NetAddress& group) = 0;
  virtual void LeaveGroup(uint32_t device_index, const NetAddress& group) = 0;
};

// Finds a group's QP by its number and address, and moves it to another state. Only devices whose
// connection manager is iw_cm need this interface.
class CmQueuePairs {
 public:
  virtual ~CmQueuePairs() = default;
  // Returns EINVAL when there is no such QP, or when the QP has been connected before.
  virtual Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) = 0;
  // ConnectQp moves the QP to RTS, and returns EINVAL as CheckConnectable does. DisconnectQp moves
  // the QP to ERR and ignores a missing QP. Both may cause a call of QpEnded.
  virtual Status ConnectQp(Time now, GroupId group, uint32_t qpn,
                           const QpConnection& connection) = 0;
  virtual void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) = 0;
};

// The interfaces are not owned.
struct CmEnvironment {
  CmAddresses& addresses;
  CmTransport& transport;
  CmGroups& groups;
  CmQueuePairs& queue_pairs;
};

}  // namespace rdmaemu::cm
