// Connection management of one host: the IB CM protocol and, on top of it, RDMA CM ids with the
// calls of the kernel's ucma (rdma_user_cm.h). Ids belong to event channels, and channels to
// groups.
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

// The reason why an event, and those behind it on its channel, are hidden from the program. The
// reason is the barrier of a fault rule (its name) or a time. Without a reason the event is visible
// at once.
struct EventWait {
  std::string barrier;
  std::optional<Time> until;
  bool is_lost = false;  // the program never gets the event

  bool over() const { return barrier.empty() && !until; }
};

// Decides about each event of a group before the event is queued for its program.
class EventDoor {
 public:
  virtual ~EventDoor() = default;
  virtual EventWait WaitOf(GroupId group, uint32_t event) = 0;
};

// Offers the first events of a channel to its program, so that the program can fetch them without a
// call (abi/process_page.h). The functions that say so call Cm::ReportFront for each offered event
// that the program has fetched. A place counts from the first event of the channel, from 0.
class EventOffers {
 public:
  virtual ~EventOffers() = default;
  // The channel may have new visible events, which its counter does not count yet.
  virtual void Offer(uint32_t channel) = 0;
  // Returns how many events of the channel are offered, or were and are not reported yet.
  virtual size_t Offered(uint32_t channel) const = 0;
  // The event at this place is about to be removed, or a query about its id gets another answer.
  // Withdraws it and the events behind it. Reports what was fetched.
  virtual void Withdraw(uint32_t channel, size_t from_place) = 0;
  // A call is about to fetch the first event that no thread has taken. Reports what was fetched.
  virtual void BeforeFetch(uint32_t channel) = 0;
};

struct CmChannel {
  uint32_t handle;
  CounterId counter;
};

struct CmStatistics {
  uint64_t messages_sent = 0, messages_received = 0, retransmissions = 0, duplicates = 0;
  uint64_t dropped_no_match = 0, dropped_backlog_full = 0, dropped_no_device = 0,
           dropped_id_in_use = 0, dropped_no_room = 0, dropped_no_route = 0,
           dropped_channel_full = 0;
};

// A port on which an id listens.
struct CmListener {
  uint16_t port_space;  // rdma_port_space
  NetAddress address;   // all zeros: any
  uint16_t port;
};

struct CmaId;
struct PendingEvent;
struct Connection;

class Cm {
 public:
  // `ids` provides the numbers of channels and ids.
  Cm(const CmEnvironment& environment, EventCounters& counters, Random& random, trace::Sink& trace,
     IdSpace ids = {});
  ~Cm();

  Result<CmChannel> CreateChannel(GroupId group, const Maker& maker = {});  // EMFILE, ENOMEM
  Status DestroyChannel(Time now, GroupId group, uint32_t channel);         // with all its ids
  // Executes one command of rdma_user_cm.h on a channel. `command` is RDMA_USER_CM_CMD_*, `in` is
  // its struct, and `out` gets the response. calls.h describes the structs where a pointer was
  // replaced. Ignores the structs' `response` members. Returns how many bytes of `out` were filled.
  // GET_EVENT returns kNothingQueued when no event is queued. The caller must then wait.
  Result<size_t> Call(Time now, GroupId group, ProcessId process, uint32_t channel,
                      uint32_t command, std::span<const std::byte> in, std::span<std::byte> out);
  void Receive(Time now, const CmRoute& route, const wire::CmMessage& message);
  // Acts as IbCm::Refused.
  void Refused(Time now, const NetAddress& local, const NetAddress& remote);
  // Call this when a QP moved to ERR or RESET or is being destroyed. Ends the QP's connection if
  // its manager is iw_cm.
  void QpEnded(Time now, uint32_t qpn);
  // Destroys all of the group's channels and ids, as the kernel does when their descriptors are
  // closed.
  void GroupGone(Time now, GroupId group);
  // Destroys the group's channels that no process owns any more.
  void EndOrphans(Time now, GroupId group, const Survivors& survivors);
  // Sends DEVICE_REMOVAL to all ids with the device, in the order in which they got the device.
  // Afterwards these ids return ENXIO. Ids without a device (wildcard listeners, unbound ids) get
  // no event. Call this while the device can still send.
  void DeviceRemoved(Time now, uint32_t device_index);
  // Reports that the address moved to another device, as after a bond's failover to a link with
  // another MAC. Ids that are bound to the address on any other device get ADDR_CHANGE, in the
  // order in which they got their device. Their states do not change (cma_netdev_change).
  void AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index);

  // `door` is not owned. Without a door no event is held.
  void SetEventDoor(EventDoor* door);
  // `offers` is not owned.
  void SetEventOffers(EventOffers* offers);
  // Returns whether this is a channel of the group. Handles of channels are not used again.
  bool HasChannel(GroupId group, uint32_t channel) const;
  // Returns the visible event at this place of a channel of the group, or nullptr. It is valid
  // until the next call of a function that changes events.
  const PendingEvent* EventAt(GroupId group, uint32_t channel, size_t place);
  // Acts as GET_EVENT for the first event, which the program has fetched.
  void ReportFront(GroupId group, uint32_t channel);
  // Offers and counts the events of changed channels. The other functions do so at their end.
  void ShowEvents();
  // Delivers the events that the barrier of that name holds. Without a name, delivers the events of
  // all barriers.
  void LetGo(const std::optional<std::string_view>& barrier);
  // Returns true while a barrier holds an event. Delayed events do not count.
  bool HoldsEvents() const;
  // Adds up the events that each barrier hides, including those behind a held one.
  void CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const;

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;
  // Acts as IbCm::AwaitsApplication.
  bool AwaitsApplication(Time now) const;

  size_t ids() const;
  size_t ids(GroupId group) const;
  // Returns an id of a channel of the group, or nullptr. It is valid until the next call of a
  // function that changes ids.
  const CmaId* FindId(GroupId group, uint32_t channel, uint32_t id);
  // Counts protocol objects, including those in timewait and those without an id.
  size_t connections() const;
  const CmStatistics& statistics() const;
  // Returns the listeners in the order of the ids' handles.
  std::vector<CmListener> Listeners() const;
  // Returns the ids in the order of their handles, at most `limit` of them. They are valid until
  // the next call of a function that changes ids.
  std::vector<const CmaId*> Ids(size_t limit) const;
  // Returns all protocol objects, in the order of their creation. They are valid until the next
  // call of a function that changes ids.
  std::vector<const Connection*> Connections() const;
  // Returns how many events of each rdma_cm_event_type were queued since the host's start.
  const std::map<uint32_t, uint64_t>& queued_events() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu::cm
