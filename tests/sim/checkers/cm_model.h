// What may happen to an RDMA CM id, as rdma_cm(7) and the pages of its calls say (section 3): in
// which order events come, and what each call answers when it is made. The id is seen from outside:
// it is where the answers and events so far have brought it. Ids here have no QP of librdmacm's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

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
  // `well_formed`: its arguments are such that only the id's state can be against it. True when its
  // failure has taken back what was begun: the peer hears a REJ.
  bool Answered(Id id, CmApi call, int error, bool well_formed = true);
  void Event(Id id, CmEventKind event, int32_t status);
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
    uint32_t events = 0;
  };

  static const char* NameOf(Place place);
  // Whether the place is right for the call, and whether an errno may come all the same.
  static bool MayWork(const State& state, CmApi call);
  static bool MayFail(const State& state, CmApi call, int error);
  // The errno that says that the place is wrong.
  static int Refusal(const State& state, CmApi call);
  static bool TakesBack(const State& state, CmApi call);
  static void Move(State& state, CmApi call);
  // Why the event may not come now; nullptr when it may.
  static const char* WhyNot(const State& state, CmEventKind event, int32_t status);
  static void Move(State& state, CmEventKind event);
  static bool IsWaiting(const State& state);
  void Complain(const State& state, const std::string& what);

  Verdict& verdict_;
  std::map<Id, State> ids_;
};

}  // namespace rdmaemu::sim
