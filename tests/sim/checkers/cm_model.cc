#include "tests/sim/checkers/cm_model.h"

#include <cerrno>

#include "emulator/base/cm_event_names.h"

namespace rdmaemu::sim {

const char* NameOf(CmApi call) {
  static constexpr const char* kNames[] = {"rdma_bind_addr",
                                           "rdma_resolve_addr",
                                           "rdma_resolve_route",
                                           "rdma_listen",
                                           "rdma_connect",
                                           "rdma_accept",
                                           "rdma_establish",
                                           "rdma_reject",
                                           "rdma_disconnect",
                                           "rdma_notify",
                                           "type of service",
                                           "reuse of the address",
                                           "AF only",
                                           "ACK timeout",
                                           "path",
                                           "attributes for INIT",
                                           "attributes for RTR or RTS",
                                           "rdma_join_multicast",
                                           "rdma_migrate_id",
                                           "a query",
                                           "rdma_destroy_id"};
  return kNames[static_cast<size_t>(call)];
}

const char* CmModel::NameOf(Place place) {
  static constexpr const char* kNames[] = {"new",          "bound",
                                           "listening",    "resolving its address",
                                           "resolved",     "resolving its route",
                                           "routed",       "asking",
                                           "answered",     "asked",
                                           "accepted",     "connected",
                                           "disconnected", "over",
                                           "removed",      "destroyed"};
  return kNames[static_cast<size_t>(place)];
}

void CmModel::Complain(const State& state, const std::string& what) {
  verdict_.Complain("cm model", state.name + ", " + NameOf(state.place) + ": " + what);
}

void CmModel::Created(Id id, const std::string& name, bool datagram) {
  State& state = ids_[id] = {};
  state.name = name;
  state.datagram = datagram;
}

void CmModel::Requested(Id listener, Id id, const std::string& name, bool datagram) {
  State& asked = ids_.at(listener);
  asked.events++;
  if (asked.place != Place::kListening) Complain(asked, "a CONNECT_REQUEST");
  if (ids_.contains(id)) Complain(ids_.at(id), "a CONNECT_REQUEST brings this id a second time");
  Created(id, name, datagram);
  ids_.at(id).passive = true;
  ids_.at(id).place = Place::kAsked;
}

void CmModel::Lost(Id id) { ids_.at(id).place = Place::kGone; }

// ---- calls

// Before it connects, and on UD always, an id has attributes of its device only. Later it has
// attributes of its connection, while the connection is being set up or established
// (cm_init_qp_init_attr and the functions like it).
bool CmModel::MayGiveAttributes(const State& state, CmApi call) {
  const Place place = state.place;
  if (state.device == 0 || place == Place::kListening) return false;
  if (state.datagram || place < Place::kAsking) return true;
  if (place == Place::kAsking) return call == CmApi::kInitQpAttr;
  return place <= Place::kConnected && !state.disconnected_by_us;
}

bool CmModel::MayWork(const State& state, CmApi call) {
  const Place place = state.place;
  if (place == Place::kGone) return false;
  if (state.removed) return call == CmApi::kDestroy;
  switch (call) {
    case CmApi::kBind:
      return place == Place::kNew;
    case CmApi::kResolveAddress:
    case CmApi::kListen:
      return place == Place::kNew || place == Place::kBound;
    case CmApi::kResolveRoute:
      return place == Place::kResolved;
    case CmApi::kConnect:
      return place == Place::kRouted;
    case CmApi::kAccept:
      return place == Place::kAsked;
    case CmApi::kEstablish:
      // An accept without parameters answers a UD request as well.
      return place == Place::kAnswered || (state.datagram && place == Place::kAsked);
    case CmApi::kReject:
      if (place == Place::kAsked) return true;
      // Both sides can reject a connection that has begun but is not established.
      return !state.datagram &&
             (place == Place::kAsking || place == Place::kAnswered || place == Place::kAccepted);
    case CmApi::kDisconnect:
      // A listener without a device cannot be disconnected.
      return place >= Place::kAsking || (place == Place::kListening && state.device != 0);
    case CmApi::kNotify:
      return !state.datagram && place == Place::kAccepted;
    case CmApi::kSetReuseAddress:
      return place != Place::kListening;
    case CmApi::kSetAfOnly:
      return place == Place::kNew || place == Place::kBound;
    case CmApi::kSetPath:
      return place == Place::kResolved;
    case CmApi::kInitQpAttr:
    case CmApi::kReadyQpAttr:
      return MayGiveAttributes(state, call);
    case CmApi::kJoin:
      return state.datagram && state.device != 0 &&
             (place == Place::kBound || place == Place::kResolved);
    case CmApi::kSetTypeOfService:
    case CmApi::kSetAckTimeout:
    case CmApi::kMigrate:
    case CmApi::kQuery:
    case CmApi::kDestroy:
      return true;
  }
  return false;
}

int CmModel::Refusal(const State& state, CmApi call) {
  if (state.place == Place::kGone) return ENOENT;
  if (state.removed) return ENXIO;
  if (call == CmApi::kNotify && !state.datagram && state.place == Place::kConnected &&
      !state.disconnected_by_us) {
    return EISCONN;
  }
  return EINVAL;
}

bool CmModel::MayFail(const State& state, CmApi call, int error) {
  if (state.removed) return false;
  switch (call) {
    case CmApi::kBind:  // another id has the port
    case CmApi::kListen:
      return MayWork(state, call) && (error == EADDRINUSE || error == EADDRNOTAVAIL);
    case CmApi::kResolveAddress:  // bound to an address of another family
      return error == EINVAL && state.place == Place::kBound;
    case CmApi::kAccept:
    case CmApi::kReject:
      // The peer has aborted the connection. Before its accept an id gets no events.
      return error == EINVAL && state.place == Place::kAsked && !state.datagram;
    case CmApi::kInitQpAttr:
    case CmApi::kReadyQpAttr:
      // The connection is ending, and the id gets no event: before its accept, or because another
      // connection's request replaced it.
      return error == EINVAL && !state.datagram &&
             (state.place == Place::kAsked || state.may_be_stale);
    case CmApi::kNotify:  // a DREQ without an event is in progress
      return error == EINVAL && state.place == Place::kConnected && state.may_be_stale;
    default:
      return false;
  }
}

bool CmModel::Answered(Id id, CmApi call, int error, bool well_formed, int due) {
  State& state = ids_.at(id);
  const bool may_work = MayWork(state, call);
  if (error == 0 && !(may_work && well_formed && due == 0)) {
    Complain(state, std::string(sim::NameOf(call)) + " works");
  }
  if (error != 0) {
    const bool expected =
        (!may_work && error == Refusal(state, call)) ||
        (!well_formed && error == EINVAL && (may_work || LooksAtArgumentsFirst(call))) ||
        (may_work && due != 0 && error == due) || MayFail(state, call, error);
    if (!expected) {
      Complain(state, std::string(sim::NameOf(call)) + " answers errno " + std::to_string(error));
    }
  }
  if (error == 0) {
    Move(state, call);
  } else if (call == CmApi::kResolveAddress && state.place == Place::kNew && error == due) {
    state.place = Place::kBound;  // to a wildcard, before the route lookup
  } else if (TakesBack(state, call)) {
    state.place = Place::kOver;
    return true;
  }
  return false;
}

// These calls check their arguments before the id (ucma_init_qp_attr, ucma_process_join).
bool CmModel::LooksAtArgumentsFirst(CmApi call) {
  return call == CmApi::kInitQpAttr || call == CmApi::kReadyQpAttr || call == CmApi::kJoin;
}

// A failed accept during a connection setup ends the setup (rdma_accept in the kernel).
bool CmModel::TakesBack(const State& state, CmApi call) {
  if (call != CmApi::kAccept && call != CmApi::kEstablish) return false;
  if (state.removed) return false;
  if (state.place == Place::kAsked) return true;
  return !state.datagram && (state.place == Place::kAsking || state.place == Place::kAnswered ||
                             state.place == Place::kAccepted);
}

void CmModel::Move(State& state, CmApi call) {
  switch (call) {
    case CmApi::kBind:
      state.place = Place::kBound;
      return;
    case CmApi::kResolveAddress:
      state.place = Place::kResolving;
      return;
    case CmApi::kResolveRoute:
    case CmApi::kSetPath:
      state.place = Place::kRouting;
      return;
    case CmApi::kListen:
      state.place = Place::kListening;
      return;
    case CmApi::kConnect:
      state.place = Place::kAsking;
      return;
    case CmApi::kAccept:
      // The passive side of a UD connection sends no further messages.
      state.place = state.datagram ? Place::kOver : Place::kAccepted;
      state.accepted = true;
      return;
    case CmApi::kEstablish:
      state.place = state.datagram ? Place::kOver : Place::kConnected;
      return;
    case CmApi::kReject:
      state.place = Place::kOver;
      return;
    case CmApi::kDisconnect:
      if (state.datagram) return;
      if (state.place == Place::kConnected) state.disconnected_by_us = true;
      if (state.place == Place::kDisconnected && !state.timewait_seen) state.timewait_due = true;
      return;
    case CmApi::kDestroy:
      state.place = Place::kGone;
      return;
    default:
      return;
  }
}

// ---- devices

void CmModel::Attached(Id id, uint32_t device) {
  State& state = ids_.at(id);
  state.device = device;
  if (!state.passive) state.attached = ++attachments_;
}

void CmModel::Removed(uint32_t device) {
  for (auto& [id, state] : ids_) {
    if (state.device != device || state.removed || state.place == Place::kGone) continue;
    state.removed = true;
    state.removal_due = state.HearsOfDevices();
    if (!state.removal_due) state.place = Place::kRemoved;
  }
}

void CmModel::RequestRemoved(Id id) {
  ids_.at(id).removed = true;
  ids_.at(id).place = Place::kRemoved;
}

void CmModel::AddressMoved(Id id) {
  State& state = ids_.at(id);
  if (state.place != Place::kGone && !state.removed && state.HearsOfDevices()) state.moves_due++;
}

void CmModel::CheckOrder(const State& state, uint32_t channel) {
  if (state.attached == 0) return;
  uint64_t& last = told_[{state.device, channel}];
  if (state.attached < last) Complain(state, "it had its device before one that was told first");
  last = state.attached;
}

// ---- events

const char* CmModel::WhyNot(const State& state, CmEventKind event, int32_t status) {
  const Place place = state.place;
  const auto in = [place](Place wanted) { return place == wanted; };
  if (place == Place::kGone) return "the id has gone";
  if (place == Place::kRemoved) return "its device has gone";
  const bool may_have_status =
      event == CmEventKind::kAddrError || event == CmEventKind::kRouteError ||
      event == CmEventKind::kConnectError || event == CmEventKind::kUnreachable ||
      event == CmEventKind::kRejected;
  const bool timed_out = event == CmEventKind::kDisconnected && status == -ETIMEDOUT;
  if (may_have_status != (status != 0) && !timed_out) return "its status is not one of its kind";
  constexpr const char* kNotAsked = "nothing asked for it";
  switch (event) {
    case CmEventKind::kAddrResolved:
      if (state.address_error_due) return "its address has no device";
      return in(Place::kResolving) ? nullptr : kNotAsked;
    case CmEventKind::kAddrError:
      if (state.datagram && in(Place::kAsking)) return nullptr;  // the Q_Keys do not agree
      if (!in(Place::kResolving)) return kNotAsked;
      if (!state.address_error_due) return "its address has a device";
      return status == -ENODEV ? nullptr : "its status is not ENODEV";
    case CmEventKind::kRouteResolved:
    case CmEventKind::kRouteError:
      return in(Place::kRouting) ? nullptr : kNotAsked;
    case CmEventKind::kConnectResponse:
      return in(Place::kAsking) && !state.datagram ? nullptr : kNotAsked;
    case CmEventKind::kUnreachable:
      if (state.datagram && status != -ETIMEDOUT && status != 1 && status != 2) {
        return "nobody gives this status";
      }
      if (!state.datagram && status != -ETIMEDOUT) return "its status is not ETIMEDOUT";
      return in(Place::kAsking) || in(Place::kAccepted) ? nullptr : kNotAsked;
    case CmEventKind::kRejected:
      if (state.datagram) return "UD has no rejections";
      return in(Place::kAsking) || in(Place::kAnswered) || in(Place::kAccepted) ||
                     in(Place::kConnected)
                 ? nullptr
                 : "there is nothing to reject";
    case CmEventKind::kEstablished:
      return (state.datagram ? in(Place::kAsking) : in(Place::kAccepted)) ? nullptr : kNotAsked;
    case CmEventKind::kDisconnected:
      if (timed_out && !state.disconnected_by_us && !state.may_be_stale)
        return "it has not disconnected itself";
      if (state.datagram) return "UD has no connections";
      return in(Place::kAccepted) || in(Place::kConnected) ? nullptr : "it is not connected";
    case CmEventKind::kTimewaitExit:
      if (state.timewait_seen) return "it came before";
      return in(Place::kDisconnected) ? nullptr : "it was not disconnected";
    case CmEventKind::kDeviceRemoval:
      return state.removal_due ? nullptr : "its device is there";
    case CmEventKind::kAddrChange:
      return state.moves_due > 0 ? nullptr : "its address is where it was";
    default:
      return "nothing here causes it";
  }
}

void CmModel::Event(Id id, CmEventKind event, int32_t status, uint32_t channel) {
  const auto found = ids_.find(id);
  if (found == ids_.end()) {
    return verdict_.Complain("cm model", std::string(CmEventName(static_cast<uint32_t>(event))) +
                                             " of an id that does not exist");
  }
  State& state = found->second;
  state.events++;
  if (const char* why = WhyNot(state, event, status)) {
    Complain(state, std::string(CmEventName(static_cast<uint32_t>(event))) + ", status " +
                        std::to_string(status) + ", but " + why);
  }
  if (event == CmEventKind::kDeviceRemoval) CheckOrder(state, channel);
  Move(state, event);
}

void CmModel::GroupEvent(Id id) {
  State& state = ids_.at(id);
  state.events++;
  if (state.place == Place::kGone || state.place == Place::kRemoved) {
    Complain(state, "an event of its multicast group");
  }
}

void CmModel::Move(State& state, CmEventKind event) {
  switch (event) {
    case CmEventKind::kAddrResolved:
    case CmEventKind::kRouteError:
      state.place = Place::kResolved;
      return;
    case CmEventKind::kAddrError:  // the id keeps its port and can try again
      state.place = state.place == Place::kAsking ? Place::kOver : Place::kBound;
      state.address_error_due = false;
      return;
    case CmEventKind::kRouteResolved:
      state.place = Place::kRouted;
      return;
    case CmEventKind::kConnectResponse:
      state.place = Place::kAnswered;
      return;
    case CmEventKind::kUnreachable:
    case CmEventKind::kRejected:
      state.place = Place::kOver;
      return;
    case CmEventKind::kEstablished:
      state.place = state.datagram ? Place::kOver : Place::kConnected;
      return;
    case CmEventKind::kDisconnected:
      state.place = Place::kDisconnected;
      return;
    case CmEventKind::kTimewaitExit:
      state.timewait_seen = true;
      state.timewait_due = false;
      return;
    case CmEventKind::kDeviceRemoval:
      state.place = Place::kRemoved;
      state.removal_due = false;
      return;
    case CmEventKind::kAddrChange:
      if (state.moves_due > 0) state.moves_due--;
      return;
    default:
      return;
  }
}

// ---- ends

bool CmModel::IsWaiting(const State& state) {
  if (state.place == Place::kGone) return false;
  if (state.removal_due || state.moves_due > 0) return true;
  if (state.removed) return false;  // no other event is due
  switch (state.place) {
    case Place::kResolving:
    case Place::kRouting:
    case Place::kAsking:
    case Place::kAccepted:
      return true;
    case Place::kConnected:
      return state.disconnected_by_us;
    case Place::kDisconnected:
      return state.timewait_due;
    default:
      return false;
  }
}

bool CmModel::IsWaiting(Id id) const { return IsWaiting(ids_.at(id)); }

void CmModel::Finish() {
  for (const auto& [id, state] : ids_) {
    if (IsWaiting(state)) Complain(state, "what it asked for never ends");
  }
}

}  // namespace rdmaemu::sim
