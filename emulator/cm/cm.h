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
#include "emulator/cm/environment.h"
#include "emulator/trace/trace.h"
#include "emulator/wire/cm_message.h"

namespace rdmaemu::cm {

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
  Cm(const CmEnvironment& environment, EventCounters& counters, Random& random, trace::Sink& trace,
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
