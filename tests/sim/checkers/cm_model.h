// The allowed behaviour of an RDMA CM id: the order of events, and the result of each call. Sources
// are rdma_cm(7) and the man pages of its calls (section 3). The model sees the id only from
// outside. The results and events so far determine the id's state. Ids here have no QP of
// librdmacm's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tests/sim/checkers/cm_checker.h"
#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

enum class CmApi : uint8_t {
  kBind,
  kResolveAddress,
  kResolveRoute,
  kListen,
  kConnect,
  kAccept,
  kEstablish,
  kReject,
  kDisconnect,
  kNotify,  // of IBV_EVENT_COMM_EST
  kSetTypeOfService,
  kSetReuseAddress,  // to permit address reuse
  kSetAfOnly,
  kSetAckTimeout,
  kSetPath,
  kInitQpAttr,   // for INIT
  kReadyQpAttr,  // for RTR or RTS
  kJoin,
  kMigrate,
  kQuery,
  kDestroy,
};
const char* NameOf(CmApi call);

class CmModel {
 public:
  using Id = uint32_t;
  explicit CmModel(Verdict& verdict) : verdict_(verdict) {}

  void Created(Id id, const std::string& name, bool datagram);
  // A CONNECT_REQUEST of `listener` has created `id`.
  void Requested(Id listener, Id id, const std::string& name, bool datagram);
  // The call has returned `error` (0: success), after all earlier events were taken. `well_formed`:
  // only the id's state can make the call fail. `due`: the errno that devices or addresses require
  // when the id's state is right. Returns true when the failure has aborted the connection setup,
  // so that the peer gets a REJ.
  bool Answered(Id id, CmApi call, int error, bool well_formed = true, int due = 0);
  // `channel`: the channel from which the event was taken.
  void Event(Id id, CmEventKind event, int32_t status, uint32_t channel = 0);
  // An event of one of its multicast groups (GroupModel). It counts as the id's event as well.
  void GroupEvent(Id id);

  // ---- devices. A device gets a new number each time it is added.

  // The id has got a device: by its address, its destination's or its request's. The time is
  // unknown for requests, so they have no position in the order of removal events.
  void Attached(Id id, uint32_t device);
  // Returns 0 when the id never had a device.
  uint32_t DeviceOf(Id id) const { return ids_.at(id).device; }
  // The next resolution must end in ADDR_ERROR, because the address has no device.
  void ExpectAddressError(Id id) { ids_.at(id).address_error_due = true; }
  // The device was removed. All its ids get DEVICE_REMOVAL in the order in which they got the
  // device, and their calls return ENXIO from then on. Ids that are not accepted yet get no event
  // (ucma_event_handler).
  void Removed(uint32_t device);
  // The program took a request after the removal of its device.
  void RequestRemoved(Id id);
  // The id's address moved to another device. The id gets ADDR_CHANGE and keeps its state.
  void AddressMoved(Id id);

  // The number of its QP, or of its peer's, is also another connection's. The protocol may
  // disconnect the id.
  void MayBeStale(Id id) { ids_.at(id).may_be_stale = true; }
  // Its process or its host has ended.
  void Lost(Id id);
  // Returns whether a requested operation must still end by itself.
  bool IsWaiting(Id id) const;
  // All time limits have expired.
  void Finish();
  // Returns the number of its events that were taken. rdma_destroy_id waits until these are
  // acknowledged.
  uint32_t EventsOf(Id id) const { return ids_.at(id).events; }

 private:
  // Named after the call or event that leads to the place.
  enum class Place : uint8_t {
    kNew,
    kBound,
    kListening,
    kResolving,
    kResolved,
    kRouting,
    kRouted,
    kAsking,     // rdma_connect
    kAnswered,   // CONNECT_RESPONSE: rdma_establish is due
    kAsked,      // of a CONNECT_REQUEST: rdma_accept is due
    kAccepted,   // rdma_accept
    kConnected,  // ESTABLISHED, rdma_establish
    kDisconnected,
    kOver,     // REJECTED, UNREACHABLE, or given up
    kRemoved,  // DEVICE_REMOVAL
    kGone,     // rdma_destroy_id
  };
  struct State {
    std::string name;
    bool datagram = false, passive = false, may_be_stale = false;
    Place place = Place::kNew;
    bool disconnected_by_us = false, timewait_due = false, timewait_seen = false;
    bool address_error_due = false;
    uint32_t events = 0;
    uint32_t device = 0;
    uint64_t attached = 0;  // when it got its device; 0: unknown
    // Its device was removed. The removal event is due, and moves_due events about moves of its
    // address.
    bool removed = false, removal_due = false;
    uint32_t moves_due = 0;
    bool accepted = false;

    // Before its accept a request has no uid, so its events would name no id.
    bool HearsOfDevices() const { return !passive || accepted; }
  };

  static const char* NameOf(Place place);
  // MayWork: the place is right for the call. MayFail: the call may still return this errno.
  static bool MayWork(const State& state, CmApi call);
  static bool MayFail(const State& state, CmApi call, int error);
  static bool MayGiveAttributes(const State& state, CmApi call);
  // Returns the errno for a wrong place.
  static int Refusal(const State& state, CmApi call);
  static bool LooksAtArgumentsFirst(CmApi call);
  static bool TakesBack(const State& state, CmApi call);
  static void Move(State& state, CmApi call);
  // Returns why the event is not allowed now; nullptr when it is allowed.
  static const char* WhyNot(const State& state, CmEventKind event, int32_t status);
  void CheckOrder(const State& state, uint32_t channel);
  static void Move(State& state, CmEventKind event);
  static bool IsWaiting(const State& state);
  void Complain(const State& state, const std::string& what);

  Verdict& verdict_;
  std::map<Id, State> ids_;
  uint64_t attachments_ = 0;
  // By removed device and channel: when the last id with a removal event had got the device.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> told_;
};

}  // namespace rdmaemu::sim
