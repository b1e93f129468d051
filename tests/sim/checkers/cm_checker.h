// Events of RDMA CM ids: each has its cause and its place (rdma_get_cm_event(3), IBTA 12.9). An
// event needs the call that asks for it, comes once, and not after the id has gone; what one side
// says in private data is what the other hears; every connect and disconnect has an end.
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
  kNotify,     // the passive side says that data came before the RTU
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

  // `datagram`: of a UD port space, whose connecting ends with one answer.
  void Created(Id id, const std::string& name, bool datagram);
  void Called(Id id, CmCallKind call, const Bytes& private_data = {});
  // A CONNECT_REQUEST came to `listener`: `id` is the new one, `active` who asks.
  void Requested(Id listener, Id id, const std::string& name, Id active,
                 std::span<const uint8_t> private_data);
  void Event(Id id, CmEventKind event, int32_t status, std::span<const uint8_t> private_data);
  // Its connection request names a QP that another live connection has: it may be refused as stale,
  // and the other one ended.
  void MayBeStale(Id id) { ids_[id].may_be_stale = true; }
  bool CouldBeStale(Id id) const { return MayBeStale(ids_.at(id)); }
  // The other side, or the network between, may have been away.
  void Disturbed(Id id) { ids_[id].disturbed = true; }
  bool IsConnected(Id id) const;
  // A connect or disconnect that waits for its end.
  bool IsWaiting(Id id) const;
  // Nothing moves any more.
  void Finish();

 private:
  struct State {
    std::string name;
    bool datagram = false, passive = false;
    // Of an active id several, where a request was answered, forgotten and repeated.
    std::vector<Id> partners;
    uint32_t called = 0, seen = 0;  // bits of CmCallKind and CmEventKind
    bool may_be_stale = false, disturbed = false, disconnecting = false;
    Bytes said, said_in_reject;
  };

  static uint32_t Bit(CmCallKind call) { return 1u << static_cast<uint32_t>(call); }
  static uint32_t Bit(CmEventKind event) { return 1u << static_cast<uint32_t>(event); }
  static bool Did(const State& state, CmCallKind call) { return (state.called & Bit(call)) != 0; }
  static bool Saw(const State& state, CmEventKind event) { return (state.seen & Bit(event)) != 0; }
  bool PartnerDid(const State& state, CmCallKind call) const;
  // It will not say another word.
  static bool HasGone(const State& state) {
    return Did(state, CmCallKind::kDestroy) || Did(state, CmCallKind::kRemoval);
  }
  bool PartnerHasGone(const State& state) const {
    return PartnerDid(state, CmCallKind::kDestroy) || PartnerDid(state, CmCallKind::kRemoval);
  }
  // Nobody knows of its request any more, so that a repeat of it is new.
  bool IsForgotten(const State& active) const;
  bool MayBeStale(const State& state) const;  // it or its partner
  // Why the event may not come now; nullptr when it may.
  const char* WhyNot(const State& state, CmEventKind event, int32_t status) const;
  const char* WhyNotEstablished(const State& state) const;
  const char* WhyNotRejected(const State& state, int32_t status) const;
  const char* WhyNotDisconnected(const State& state) const;
  static bool Heard(const Bytes& said, std::span<const uint8_t> heard);
  void Complain(const State& state, const std::string& what);

  Verdict& verdict_;
  std::map<Id, State> ids_;
};

}  // namespace rdmaemu::sim
