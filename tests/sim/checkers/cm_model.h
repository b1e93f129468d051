// What may happen to an RDMA CM id, as rdma_cm(7) and the pages of its calls say (section 3): in
// which order events come, and what each call answers when it is made. The id is seen from outside:
// it is where the answers and events so far have brought it. Ids here have no QP of librdmacm's.
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
  kSetReuseAddress,  // to be able to
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
  // A CONNECT_REQUEST of `listener` has brought `id`.
  void Requested(Id listener, Id id, const std::string& name, bool datagram);
  // The call has answered `error` (0: it worked), all events before it having been taken.
  // `well_formed`: its arguments are such that only the id's state can be against it. `due`: the
  // errno that it must answer where the id's state is right, for the devices' or addresses' sake.
  // True when its failure has taken back what was begun: the peer hears a REJ.
  bool Answered(Id id, CmApi call, int error, bool well_formed = true, int due = 0);
  // `channel`: what it was taken from.
  void Event(Id id, CmEventKind event, int32_t status, uint32_t channel = 0);
  // An event of one of its multicast groups (GroupModel), which counts as the id's too.
  void GroupEvent(Id id);

  // ---- devices. Each time that a device comes, it is another one and has another number.

  // The id has got a device: by its address, its destination's or its request's. Of requests
  // nobody knows when, so that they have no place in the order of those who hear of a removal.
  void Attached(Id id, uint32_t device);
  // 0: it never had one.
  uint32_t DeviceOf(Id id) const { return ids_.at(id).device; }
  // The resolution that comes next must end in ADDR_ERROR: the address has no device.
  void ExpectAddressError(Id id) { ids_.at(id).address_error_due = true; }
  // The device has gone: all its ids hear DEVICE_REMOVAL, in the order in which they got it, and
  // answer ENXIO from then on. Those that nobody has accepted yet hear nothing
  // (ucma_event_handler).
  void Removed(uint32_t device);
  // A request that was taken only after the device that it came to had gone.
  void RequestRemoved(Id id);
  // The id's address is another device's now: it hears ADDR_CHANGE, and stays what it is.
  void AddressMoved(Id id);

  // Its QP's number, or its peer's, is another connection's too: the protocol may disconnect it.
  void MayBeStale(Id id) { ids_.at(id).may_be_stale = true; }
  // Its process or its host has died.
  void Lost(Id id);
  // Something was asked for that must come to an end by itself.
  bool IsWaiting(Id id) const;
  // All the time that anything may take has passed.
  void Finish();
  // How many of its events were taken: what rdma_destroy_id waits for acknowledgements of.
  uint32_t EventsOf(Id id) const { return ids_.at(id).events; }

 private:
  // By the call or event that led there.
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
    uint64_t attached = 0;  // when it got its device; 0: nobody knows
    // Its device was removed; it is to hear of that, and of so many moves of its address.
    bool removed = false, removal_due = false;
    uint32_t moves_due = 0;
    bool accepted = false;

    // Before its accept a request has no uid, and events of it would say nothing to anybody.
    bool HearsOfDevices() const { return !passive || accepted; }
  };

  static const char* NameOf(Place place);
  // Whether the place is right for the call, and whether an errno may come all the same.
  static bool MayWork(const State& state, CmApi call);
  static bool MayFail(const State& state, CmApi call, int error);
  static bool MayGiveAttributes(const State& state, CmApi call);
  // The errno that says that the place is wrong.
  static int Refusal(const State& state, CmApi call);
  static bool LooksAtArgumentsFirst(CmApi call);
  static bool TakesBack(const State& state, CmApi call);
  static void Move(State& state, CmApi call);
  // Why the event may not come now; nullptr when it may.
  static const char* WhyNot(const State& state, CmEventKind event, int32_t status);
  void CheckOrder(const State& state, uint32_t channel);
  static void Move(State& state, CmEventKind event);
  static bool IsWaiting(const State& state);
  void Complain(const State& state, const std::string& what);

  Verdict& verdict_;
  std::map<Id, State> ids_;
  uint64_t attachments_ = 0;
  // By removed device and channel: when the last one that heard of it had got it.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> told_;
};

}  // namespace rdmaemu::sim
