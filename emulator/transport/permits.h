// The host's side of permits (emulator/abi/permit.h). The host permits a program to execute WRITEs
// and READs between two QPs of this host.
//
// An executed request has no train. So there are no permits while anything looks at packets,
// completions or memory: captures, traces, fault rules. The code that begins to look, or that
// revokes a right, first calls EndAll.
#pragma once

#include <cstddef>
#include <functional>
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

 private:
  bool MayGrant(const QpContext& context, const SendWqe& request) const;
  // Returns the context of the QP that answers. nullptr: there is none.
  QpContext* PeerOf(const QpContext& context) const;
  // Returns true if the peer answers requests, and has answered all of them.
  bool IsReady(const QpContext& context, const QpContext& peer) const;
  Permit PermitFor(const QpContext& context, const QpContext& peer, const SendWqe& request) const;
  void InterruptNow(QpContext& context);
  void Settle(QpContext& context);
  void AwaitCopies(GroupShare& share);

  const Engine::Environment& environment_;
  PayloadOwner& payloads_;
  EngineCounters& counters_;
  std::vector<QpContext*> listed_;  // those that got a permit since the last EndAll
};

}  // namespace rdmaemu::transport
