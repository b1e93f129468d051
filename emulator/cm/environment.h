// What connection management asks of its host, in four interfaces: its addresses, the way out for
// messages, multicast groups, and the queue pairs that iw_cm moves.
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

// A device as connection management sees it.
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

// From where to where a CM message goes; `source` is ours when sending, the peer's when receiving.
struct CmRoute {
  NetAddress source, destination;
  uint8_t traffic_class = 0;
};

// What a host's routes say of a destination (rdma_resolve_ip of the kernel).
struct Reach {
  enum class Kind : uint8_t {
    kNone,    // ENETUNREACH
    kSilent,  // no neighbour ever answers: the address does not resolve
    kFound,
  };
  Kind kind = Kind::kNone;
  NetAddress source = {};  // the own address from which the destination is reached; of kFound
};

// Which devices and addresses the host has, and which routes its addresses make.
class CmAddresses {
 public:
  virtual ~CmAddresses() = default;
  // The device that owns a local address; nullptr when no device of this host has it.
  virtual const CmDevice* DeviceOf(const NetAddress& local) const = 0;
  virtual std::vector<const CmDevice*> Devices() const = 0;
  // Index of the address in its device's GID table.
  virtual uint8_t GidIndexOf(const NetAddress& local) const = 0;
  // Looks the destination up in the host's routes (ip route get). `from`: only routes of the device
  // that has this own address count, and it is the source.
  virtual Reach FindRoute(const NetAddress& destination,
                          const std::optional<NetAddress>& from = {}) const = 0;
  // The own address in the GID's subnet (cma_resolve_ib_dev); empty: none is.
  virtual std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) const = 0;
  // The first entry of the device's P_Key table.
  virtual uint16_t FirstPkeyOf(const CmDevice& device) const {
    (void)device;
    return wire::kDefaultPkey;
  }
  // Index of the partition in the P_Key table of the address's device (ib_find_cached_pkey);
  // nothing: it is not there. Where nothing is said, there is the default partition alone.
  virtual std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) const {
    (void)local;
    return (pkey & 0x7fff) == 0x7fff ? std::optional<uint16_t>(0) : std::nullopt;
  }
  // Devices of this host have loopback addresses of this family: others of them may be peers.
  virtual bool LivesOnLoopback(bool ipv4) const = 0;
  // Own addresses that are not of an RDMA device answer true here and nullptr in DeviceOf.
  virtual bool IsOwnAddress(const NetAddress& address) const = 0;
};

class CmTransport {
 public:
  virtual ~CmTransport() = default;
  // An errno: it cannot leave, and the kernel would be told so at once (a MAD whose send fails);
  // what is lost on its way is no error.
  virtual Status Send(Time now, const CmRoute& route, const wire::CmMessage& message) = 0;
};

class CmGroups {
 public:
  virtual ~CmGroups() = default;
  // The device joins a multicast group on the link of its address `local`, or leaves it: each join
  // is left once, and the device is a member as long as one is left. An errno of the network when
  // the first cannot be had.
  virtual Status JoinGroup(uint32_t device_index, const NetAddress& local,
                           const NetAddress& group) = 0;
  virtual void LeaveGroup(uint32_t device_index, const NetAddress& group) = 0;
};

// For devices whose connection manager is iw_cm: the group's QP of this number at this address.
class CmQueuePairs {
 public:
  virtual ~CmQueuePairs() = default;
  // EINVAL: there is none, or it has been connected before.
  virtual Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) = 0;
  // It goes to RTS, EINVAL as above; to ERR, if it is there still. Both may be told by QpEnded.
  virtual Status ConnectQp(Time now, GroupId group, uint32_t qpn,
                           const QpConnection& connection) = 0;
  virtual void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) = 0;
};

// Not owned.
struct CmEnvironment {
  CmAddresses& addresses;
  CmTransport& transport;
  CmGroups& groups;
  CmQueuePairs& queue_pairs;
};

}  // namespace rdmaemu::cm
