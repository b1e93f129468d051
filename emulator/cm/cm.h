// Connection management of one host: the IB CM protocol and, on top of it, RDMA CM ids with the
// calls of the kernel's ucma (rdma_user_cm.h). Ids belong to event channels, channels to groups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/id_space.h"
#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/survivors.h"
#include "emulator/base/time.h"
#include "emulator/base/uapi.h"
#include "emulator/trace/trace.h"
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

// What CM asks of its host.
class CmEnvironment {
 public:
  virtual ~CmEnvironment() = default;
  // The device that owns a local address; nullptr when no device of this host has it.
  virtual const CmDevice* DeviceOf(const NetAddress& local) = 0;
  virtual std::vector<const CmDevice*> Devices() = 0;
  // Index of the address in its device's GID table.
  virtual uint8_t GidIndexOf(const NetAddress& local) = 0;
  // Looks the destination up in the host's routes (ip route get). `from`: only routes of the device
  // that has this own address count, and it is the source.
  virtual Reach FindRoute(const NetAddress& destination,
                          const std::optional<NetAddress>& from = {}) = 0;
  // The own address in the GID's subnet (cma_resolve_ib_dev); empty: none is.
  virtual std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) = 0;
  // The first entry of the device's P_Key table.
  virtual uint16_t FirstPkeyOf(const CmDevice& device) {
    (void)device;
    return wire::kDefaultPkey;
  }
  // Index of the partition in the P_Key table of the address's device (ib_find_cached_pkey);
  // nothing: it is not there. Where nothing is said, there is the default partition alone.
  virtual std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) {
    (void)local;
    return (pkey & 0x7fff) == 0x7fff ? std::optional<uint16_t>(0) : std::nullopt;
  }
  // Devices of this host have loopback addresses of this family: others of them may be peers.
  virtual bool LivesOnLoopback(bool ipv4) = 0;
  // Own addresses that are not of an RDMA device answer true here and nullptr in DeviceOf.
  virtual bool IsOwnAddress(const NetAddress& address) = 0;
  // An errno: it cannot leave, and the kernel would be told so at once (a MAD whose send fails);
  // what is lost on its way is no error.
  virtual Status Send(Time now, const CmRoute& route, const wire::CmMessage& message) = 0;
  // The device joins a multicast group on the link of its address `local`, or leaves it: each join
  // is left once, and the device is a member as long as one is left. An errno of the network when
  // the first cannot be had.
  virtual Status JoinGroup(uint32_t device_index, const NetAddress& local,
                           const NetAddress& group) = 0;
  virtual void LeaveGroup(uint32_t device_index, const NetAddress& group) = 0;
  // For devices whose connection manager is iw_cm: the group's QP of this number at this address.
  // EINVAL: there is none, or it has been connected before.
  virtual Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) = 0;
  // It goes to RTS, EINVAL as above; to ERR, if it is there still. Both may be told by QpEnded.
  virtual Status ConnectQp(Time now, GroupId group, uint32_t qpn,
                           const QpConnection& connection) = 0;
  virtual void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) = 0;
};

// What keeps an event from its program, and those behind it on its channel: the barrier of a fault
// rule (its name), or a time; nothing: it can be seen at once.
struct EventWait {
  std::string barrier;
  std::optional<Time> until;

  bool over() const { return barrier.empty() && !until; }
};

// Asked about each event of a group before it is queued for its program.
class EventDoor {
 public:
  virtual ~EventDoor() = default;
  virtual EventWait WaitOf(GroupId group, uint32_t event) = 0;
};

struct CmChannel {
  uint32_t handle;
  CounterId counter;
};

struct CmStatistics {
  uint64_t messages_sent = 0, messages_received = 0, retransmissions = 0, duplicates = 0;
  uint64_t dropped_no_match = 0, dropped_backlog_full = 0, dropped_no_device = 0,
           dropped_id_in_use = 0, dropped_no_room = 0, dropped_no_route = 0;
};

// A port on which an id listens.
struct CmListener {
  uint16_t port_space;  // rdma_port_space
  NetAddress address;   // all zeros: any
  uint16_t port;
};

class Cm {
 public:
  // `ids`: the numbers of its channels and ids.
  Cm(CmEnvironment& environment, EventCounters& counters, Random& random, trace::Sink& trace,
     IdSpace ids = {});
  ~Cm();

  Result<CmChannel> CreateChannel(GroupId group, const Maker& maker = {});  // EMFILE, ENOMEM
  Status DestroyChannel(Time now, GroupId group, uint32_t channel);         // with all its ids
  // One command of rdma_user_cm.h on a channel: `command` is RDMA_USER_CM_CMD_*, `in` its struct
  // (calls.h says which, where a pointer had to go), `out` its response. Answers the bytes of
  // `out` that were filled. `response` members are not looked at. GET_EVENT answers
  // kNothingQueued when no event is queued: the caller waits.
  Result<size_t> Call(Time now, GroupId group, ProcessId process, uint32_t channel,
                      uint32_t command, std::span<const std::byte> in, std::span<std::byte> out);
  void Receive(Time now, const CmRoute& route, const wire::CmMessage& message);
  // IbCm::Refused.
  void Refused(Time now, const NetAddress& local, const NetAddress& remote);
  // A QP went to ERR or RESET or is being destroyed: where the manager is iw_cm, so does its
  // connection end.
  void QpEnded(Time now, uint32_t qpn);
  // All of the group's channels and ids go, as when their descriptor is closed.
  void GroupGone(Time now, GroupId group);
  // The same of the channels that belong to nobody any more.
  void EndOrphans(Time now, GroupId group, const Survivors& survivors);
  // Ids with the device hear DEVICE_REMOVAL, in the order in which they got it, and then answer
  // ENXIO; those without one (wildcard listeners, unbound ids) hear nothing. To be called while
  // the device can still send.
  void DeviceRemoved(Time now, uint32_t device_index);
  // The address is another device's now, as after a bond's failover to a link with another MAC:
  // ids that are bound to it on a device other than that hear ADDR_CHANGE, in the same order. They
  // stay what they are (cma_netdev_change).
  void AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index);

  // Not owned; without one nothing is held.
  void SetEventDoor(EventDoor* door);
  // What the barrier of that name holds, or (nothing) all of them do, comes to its program.
  void LetGo(const std::optional<std::string_view>& barrier);
  // A barrier does; an event that waits for its time is not meant.
  bool HoldsEvents() const;
  // Adds the events that each barrier keeps back, those that stand behind one too.
  void CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const;

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;
  // IbCm::AwaitsApplication.
  bool AwaitsApplication(Time now) const;

  size_t ids() const;
  size_t ids(GroupId group) const;
  // Protocol objects, timewait and those whose ids are gone included.
  size_t connections() const;
  const CmStatistics& statistics() const;
  // In the order of the ids' handles.
  std::vector<CmListener> Listeners() const;
  // How many events of each rdma_cm_event_type channels have got since the host's start.
  const std::map<uint32_t, uint64_t>& queued_events() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu::cm
