// The host's side of permits (emulator/abi/permit.h). The host permits a program to execute WRITEs
// and READs itself. The peer is a QP of this host, or of another host of this user, which then
// lends a permit (lent_permits.h).
//
// An executed request has no train. So there are no permits while anything looks at packets,
// completions or memory: captures, traces, fault rules. The code that begins to look, or that
// revokes a right, first calls EndAll.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "emulator/transport/engine.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/qp_context.h"

namespace rdmaemu::transport {

class Permits {
 public:
  // The most QPs with a permit at a time. EndAll looks at each of them.
  static constexpr size_t kMaxPermits = 256;

  Permits(const Engine::Environment& environment, PayloadOwner& payloads, EngineCounters& counters)
      : environment_(environment), payloads_(payloads), counters_(counters) {}

  // Permits the QP's program to execute requests like `request`, which was the last one in the
  // queue and has completed. Does nothing if they need the host.
  void Grant(QpContext& context, const SendWqe& request);
  // Ends the QP's permit before the host executes a posted request, and counts the executed ones.
  void Interrupt(QpContext& context) {
    if (context.permit.last_number != 0) InterruptNow(context);
  }
  // Counts the executed requests of all QPs. Call this before someone reads a counter.
  void Settle();
  // Ends all permits. Waits for copies that have begun. No thread of a program copies afterwards,
  // except one that a tracer holds for very long.
  void EndAll();
  // Call this when the QP moves to RTS. Forgets requests that a thread has executed before the QP's
  // last RESET.
  void Begin(QpContext& context);
  // The QP begins another life, or is destroyed. Call EndAll before.
  void Forget(QpContext& context);

 private:
  // The most grants without an offer after one that the program did not use.
  static constexpr uint32_t kMostSkips = 1023;

  bool MayGrant(const QpContext& context, const SendWqe& request) const;
  // Set the peer's half. Return false if there is none.
  bool SetLocalPeer(const QpContext& context, const SendWqe& request, Permit& permit);
  bool SetRemotePeer(QpContext& context, const SendWqe& request, Permit& permit);
  bool Offer(QpContext& context, const SendWqe& request);
  void InterruptNow(QpContext& context);
  void Settle(QpContext& context);

  const Engine::Environment& environment_;
  PayloadOwner& payloads_;
  EngineCounters& counters_;
  std::vector<QpContext*> listed_;  // those that got a permit since the last EndAll
};

// Returns true if the QP is an RC QP in RTS with only so many requests that have not completed, and
// the answers to these have arrived.
bool IsIdleAfter(const QpContext& context, size_t requests);
// Returns true if the QP answers requests, and has answered all of them.
inline bool IsReadyToAnswer(const QpContext& context) {
  const ResponderState& s = context.responder;
  const ibv_qp_state state = context.qp->state();
  return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && s.message == Message::kNone &&
         s.responses.empty() && !s.receive && context.parked[0].trains.empty();
}
// Returns the context of the QP of this host that answers. nullptr: there is none.
QpContext* LocalPeerOf(const Engine::Environment& environment, const QpContext& context);
// Returns true if the peer has answered all requests, and awaits the QP's next one.
inline bool AwaitsNext(const QpContext& peer, const QpContext& context) {
  return IsReadyToAnswer(peer) && peer.responder.expected_psn == context.requester.next_psn;
}
// Returns true if the peer of this host also has a working link, as the QP has.
bool IsReady(const Engine::Environment& environment, const QpContext& context,
             const QpContext& peer);
// Sets what depends on the program's own memory, for requests like `request`. Returns false if the
// program must not execute them.
bool SetOwnHalf(const Engine::Environment& environment, const QpContext& context,
                const SendWqe& request, Permit& permit);
// Returns a number for the next permit.
uint32_t NextPermitNumber(uint32_t& last);
// Returns what a permit names of a region.
PermittedRegion Permitted(const MemoryRegion& region, uint32_t key, int access);
// Returns the remote region of a QP that a permit may name, with those of the rights that the QP
// gives its peer. Returns nothing if no program may copy to the region.
std::optional<PermittedRegion> RegionToPermit(const Engine::Environment& environment,
                                              const QueuePair& qp, uint32_t rkey, int rights);

}  // namespace rdmaemu::transport
