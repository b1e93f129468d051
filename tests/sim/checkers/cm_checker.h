// Events of RDMA CM ids: each event has its cause and its place (rdma_get_cm_event(3), IBTA 12.9).
// An event needs the call that requests it, is delivered once, and not after its id was destroyed.
// Each side receives the private data that the other side sent. Every connect and disconnect ends.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

enum class CmCallKind : uint8_t {
  kListen,
  kResolveAddress,
  kResolveRoute,
  kConnect,
  kAccept,
  kEstablish,  // the active side sends its RTU
  kNotify,     // the passive side reports that data arrived before the RTU
  kReject,
  kDisconnect,
  kDestroy,  // or its process has died
  kRemoval,  // its device was removed
};

// In the order of rdma_cm_event_type.
enum class CmEventKind : uint8_t {
  kAddrResolved,
  kAddrError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddrChange,
  kTimewaitExit,
};

class CmChecker {
 public:
  using Id = uint32_t;
  using Bytes = std::vector<uint8_t>;

  explicit CmChecker(Verdict& verdict) : verdict_(verdict) {}

  // `datagram`: the id is of a UD port space, whose connection setup ends with one answer.
  void Created(Id id, const std::string& name, bool datagram);
  void Called(Id id, CmCallKind call, const Bytes& private_data = {});
  // `listener` got a CONNECT_REQUEST. `id` is the new id, `active` the requesting one.
  void Requested(Id listener, Id id, const std::string& name, Id active,
                 std::span<const uint8_t> private_data);
  void Event(Id id, CmEventKind event, int32_t status, std::span<const uint8_t> private_data);
  // Its connection request names a QP that another live connection uses. The CM may reject the
  // request as stale and end the other connection.
  void MayBeStale(Id id) { ids_[id].may_be_stale = true; }
  bool CouldBeStale(Id id) const { return MayBeStale(ids_.at(id)); }
  // The other side or the network may have been down.
  void Disturbed(Id id) { ids_[id].disturbed = true; }
  bool IsConnected(Id id) const;
  // Returns whether a connect or disconnect has not ended yet.
  bool IsWaiting(Id id) const;
  // All activity is over.
  void Finish();

 private:
  struct State {
    std::string name;
    bool datagram = false, passive = false;
    // An active id has several partners when a request was answered, forgotten and repeated.
    std::vector<Id> partners;
    uint32_t called = 0, seen = 0;  // bits of CmCallKind and CmEventKind
    bool may_be_stale = false, disturbed = false, disconnecting = false;
    uint64_t listened_at = 0, connected_at = 0;  // numbers of calls
    // The listener of its partner is younger than its request. An earlier copy of the request may
    // have met no listener of its address.
    bool met_new_listener = false;
    Bytes said, said_in_reject;
  };

  static uint32_t Bit(CmCallKind call) { return 1u << static_cast<uint32_t>(call); }
  static uint32_t Bit(CmEventKind event) { return 1u << static_cast<uint32_t>(event); }
  static bool Did(const State& state, CmCallKind call) { return (state.called & Bit(call)) != 0; }
  static bool Saw(const State& state, CmEventKind event) { return (state.seen & Bit(event)) != 0; }
  bool PartnerDid(const State& state, CmCallKind call) const;
  // Returns whether the id sends no more messages.
  static bool HasGone(const State& state) {
    return Did(state, CmCallKind::kDestroy) || Did(state, CmCallKind::kRemoval);
  }
  bool PartnerHasGone(const State& state) const {
    return PartnerDid(state, CmCallKind::kDestroy) || PartnerDid(state, CmCallKind::kRemoval);
  }
  // Returns whether all partners have forgotten its request, so that a repeat is a new request.
  bool IsForgotten(const State& active) const;
  bool MayBeStale(const State& state) const;  // the id or its partner
  // Returns why the event is not allowed now; nullptr when it is allowed.
  const char* WhyNot(const State& state, CmEventKind event, int32_t status) const;
  const char* WhyNotEstablished(const State& state) const;
  const char* WhyNotRejected(const State& state, int32_t status) const;
  const char* WhyNotDisconnected(const State& state) const;
  static bool Heard(const Bytes& said, std::span<const uint8_t> heard);
  void Complain(const State& state, const std::string& what);

  uint64_t calls_ = 0;
  Verdict& verdict_;
  std::map<Id, State> ids_;
};

}  // namespace rdmaemu::sim
