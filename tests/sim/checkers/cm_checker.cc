#include "tests/sim/checkers/cm_checker.h"

#include <algorithm>

namespace rdmaemu::sim {
namespace {

constexpr int32_t kRejectTimeout = 4, kRejectServiceId = 8, kRejectStale = 10, kRejectConsumer = 28;

const char* NameOf(CmEventKind event) {
  constexpr const char* kNames[] = {
      "ADDR_RESOLVED",   "ADDR_ERROR",       "ROUTE_RESOLVED", "ROUTE_ERROR",
      "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",  "UNREACHABLE",
      "REJECTED",        "ESTABLISHED",      "DISCONNECTED",   "DEVICE_REMOVAL",
      "MULTICAST_JOIN",  "MULTICAST_ERROR",  "ADDR_CHANGE",    "TIMEWAIT_EXIT"};
  const auto number = static_cast<size_t>(event);
  return number < std::size(kNames) ? kNames[number] : "an unknown event";
}

}  // namespace

void CmChecker::Complain(const State& state, const std::string& what) {
  verdict_.Complain("cm", state.name + ": " + what);
}

bool CmChecker::PartnerDid(const State& state, CmCallKind call) const {
  return std::ranges::any_of(state.partners,
                             [&](Id partner) { return Did(ids_.at(partner), call); });
}

bool CmChecker::MayBeStale(const State& state) const {
  return state.may_be_stale || std::ranges::any_of(state.partners, [&](Id partner) {
           return ids_.at(partner).may_be_stale;
         });
}

// Finished requests are forgotten: a later repeat is a new request. The kernel also removes the
// pair of GUID and communication id when timewait begins.
bool CmChecker::IsForgotten(const State& active) const {
  return std::ranges::all_of(active.partners, [&](Id partner) {
    const State& before = ids_.at(partner);
    return Did(before, CmCallKind::kReject) || HasGone(before) ||
           Saw(before, CmEventKind::kDisconnected) || Saw(before, CmEventKind::kRejected) ||
           Saw(before, CmEventKind::kUnreachable);
  });
}

void CmChecker::Created(Id id, const std::string& name, bool datagram) {
  State state;
  state.name = name;
  state.datagram = datagram;
  ids_[id] = std::move(state);
}

void CmChecker::Called(Id id, CmCallKind call, const Bytes& private_data) {
  State& state = ids_.at(id);
  // A disconnect has no effect on an id that is not connected.
  if (call == CmCallKind::kDisconnect && IsConnected(id)) state.disconnecting = true;
  // After an address error the id may resolve again.
  if (call == CmCallKind::kResolveAddress) state.seen &= ~Bit(CmEventKind::kAddrError);
  state.called |= Bit(call);
  calls_++;
  if (call == CmCallKind::kListen) state.listened_at = calls_;
  if (call == CmCallKind::kConnect) state.connected_at = calls_;
  if (call == CmCallKind::kConnect || call == CmCallKind::kAccept) state.said = private_data;
  if (call == CmCallKind::kReject) state.said_in_reject = private_data;
}

// The received private data is the sent data followed by zeros.
bool CmChecker::Heard(const Bytes& said, std::span<const uint8_t> heard) {
  return heard.size() >= said.size() && std::ranges::equal(said, heard.first(said.size())) &&
         std::ranges::all_of(heard.subspan(said.size()), [](uint8_t byte) { return byte == 0; });
}

void CmChecker::Requested(Id listener, Id id, const std::string& name, Id active,
                          std::span<const uint8_t> private_data) {
  const State& listening = ids_.at(listener);
  if (!Did(listening, CmCallKind::kListen))
    Complain(listening, "a request, and it does not listen");
  if (Did(listening, CmCallKind::kDestroy)) Complain(listening, "a request after its end");
  const auto asks = ids_.find(active);
  if (asks == ids_.end() || !Did(asks->second, CmCallKind::kConnect)) {
    return Complain(listening, "a request from nobody who connects");
  }
  const bool given_up = HasGone(asks->second);
  // For a stale connection the first request may have been rejected on a channel that was not read
  // yet.
  const bool may_repeat = given_up || MayBeStale(asks->second) || IsForgotten(asks->second);
  if (!may_repeat && !asks->second.datagram) {
    Complain(listening, "a second request for one connect of " + asks->second.name);
  }
  asks->second.partners.push_back(id);
  if (listening.listened_at > asks->second.connected_at) asks->second.met_new_listener = true;
  State state;
  state.name = name;
  state.passive = true;
  state.datagram = asks->second.datagram;
  state.partners.push_back(active);
  state.disturbed = asks->second.disturbed;
  if (!Heard(asks->second.said, private_data)) {
    Complain(state, "its private data is not what " + asks->second.name + " has said");
  }
  ids_[id] = std::move(state);
}

bool CmChecker::IsConnected(Id id) const {
  const State& state = ids_.at(id);
  if (state.datagram || HasGone(state)) return false;
  return state.passive ? Saw(state, CmEventKind::kEstablished) : Did(state, CmCallKind::kEstablish);
}

const char* CmChecker::WhyNotEstablished(const State& state) const {
  if (state.datagram) {
    if (state.passive) return "a UD listener's side never gets it";
    return PartnerDid(state, CmCallKind::kAccept) ? nullptr : "the other side did not accept";
  }
  if (!state.passive) return "the active side has established it itself";
  if (!Did(state, CmCallKind::kAccept)) return "it was not accepted";
  return PartnerDid(state, CmCallKind::kEstablish) || Did(state, CmCallKind::kNotify)
             ? nullptr
             : "the other side was not ready to use it";
}

const char* CmChecker::WhyNotRejected(const State& state, int32_t status) const {
  if (state.datagram) return "UD requests are not rejected, but unreachable";
  if (!state.passive && !Did(state, CmCallKind::kConnect)) return "nothing was asked for";
  if (state.passive && !Did(state, CmCallKind::kAccept)) return "nobody knows of the id yet";
  switch (status) {
    case kRejectServiceId:
      return state.passive ? "only a request can miss its service" : nullptr;
    case kRejectStale:
      return MayBeStale(state) ? nullptr : "its QP is of no other connection";
    case kRejectTimeout:
    case kRejectConsumer:
      // Destroying a listener rejects its pending requests, and repeats among them.
      if (!state.passive && (IsForgotten(state) || state.met_new_listener)) return nullptr;
      return PartnerDid(state, CmCallKind::kReject) || PartnerHasGone(state)
                 ? nullptr
                 : "the other side did not reject";
    default:
      return "nobody gives this reason";
  }
}

const char* CmChecker::WhyNotDisconnected(const State& state) const {
  if (state.datagram) return "UD has no connections";
  if (!Did(state, state.passive ? CmCallKind::kAccept : CmCallKind::kEstablish)) {
    return "it was not connected";
  }
  if (Did(state, CmCallKind::kDisconnect) || MayBeStale(state)) return nullptr;
  return PartnerDid(state, CmCallKind::kDisconnect) || PartnerHasGone(state)
             ? nullptr
             : "neither side has disconnected";
}

const char* CmChecker::WhyNot(const State& state, CmEventKind event, int32_t status) const {
  if (Did(state, CmCallKind::kDestroy)) return "the id was destroyed";
  if (event == CmEventKind::kAddrChange) return nullptr;  // whenever an address moves
  if (Saw(state, event)) return "it came before";
  const bool over = Saw(state, CmEventKind::kRejected) || Saw(state, CmEventKind::kUnreachable);
  if (over && event != CmEventKind::kDeviceRemoval) return "the connection attempt had ended";
  switch (event) {
    case CmEventKind::kAddrResolved:
    case CmEventKind::kAddrError:
      return Did(state, CmCallKind::kResolveAddress) ? nullptr : "no address was asked for";
    case CmEventKind::kRouteResolved:
      return Did(state, CmCallKind::kResolveRoute) ? nullptr : "no route was asked for";
    case CmEventKind::kConnectResponse:
      if (state.passive || !Did(state, CmCallKind::kConnect)) return "nothing was asked for";
      return PartnerDid(state, CmCallKind::kAccept) ? nullptr : "nobody accepted";
    case CmEventKind::kUnreachable:
      if (!Did(state, state.passive ? CmCallKind::kAccept : CmCallKind::kConnect)) {
        return "nothing was asked for";
      }
      if (state.datagram && status > 0) return nullptr;  // the status refuses the request
      return state.disturbed ? nullptr : "nothing kept the other side from answering";
    case CmEventKind::kRejected:
      return WhyNotRejected(state, status);
    case CmEventKind::kEstablished:
      return WhyNotEstablished(state);
    case CmEventKind::kDisconnected:
      return WhyNotDisconnected(state);
    case CmEventKind::kTimewaitExit:
      return Saw(state, CmEventKind::kDisconnected) ? nullptr : "it was not disconnected";
    case CmEventKind::kDeviceRemoval:
      return Did(state, CmCallKind::kRemoval) ? nullptr : "its device is there";
    default:
      return "nothing causes it";
  }
}

void CmChecker::Event(Id id, CmEventKind event, int32_t status,
                      std::span<const uint8_t> private_data) {
  const auto it = ids_.find(id);
  if (it == ids_.end()) {
    return verdict_.Complain("cm", std::string(NameOf(event)) + " on an id that does not exist");
  }
  State& state = it->second;
  if (const char* why = WhyNot(state, event, status)) {
    Complain(state,
             std::string(NameOf(event)) + " (status " + std::to_string(status) + "), but " + why);
  }
  const bool answers = event == CmEventKind::kConnectResponse ||
                       (state.datagram && event == CmEventKind::kEstablished);
  const bool refuses = event == CmEventKind::kRejected && status == kRejectConsumer &&
                       PartnerDid(state, CmCallKind::kReject);
  // If a REJ is lost, the passive side rejects the repeated request without private data.
  if ((answers || refuses) && !std::ranges::any_of(state.partners, [&](Id partner) {
        const State& speaker = ids_.at(partner);
        return Heard(answers ? speaker.said : speaker.said_in_reject, private_data) ||
               (refuses && (HasGone(speaker) || IsForgotten(state)) &&
                std::ranges::all_of(private_data, [](uint8_t byte) { return byte == 0; }));
      })) {
    Complain(state, "its private data is not what the other side has said");
  }
  state.seen |= Bit(event);
}

bool CmChecker::IsWaiting(Id id) const {
  const State& state = ids_.at(id);
  if (HasGone(state) || Did(state, CmCallKind::kReject)) return false;
  const bool ended = Saw(state, CmEventKind::kRejected) || Saw(state, CmEventKind::kUnreachable) ||
                     Saw(state, CmEventKind::kDisconnected);
  if (ended) return false;
  if (!state.passive && Did(state, CmCallKind::kConnect) &&
      !Saw(state, CmEventKind::kConnectResponse) && !Saw(state, CmEventKind::kEstablished)) {
    return true;
  }
  if (state.passive && !state.datagram && Did(state, CmCallKind::kAccept) &&
      !Saw(state, CmEventKind::kEstablished)) {
    return true;
  }
  return state.disconnecting;
}

void CmChecker::Finish() {
  for (const auto& [id, state] : ids_) {
    if (IsWaiting(id)) Complain(state, "it still waits for the end of what it asked for");
  }
}

}  // namespace rdmaemu::sim
