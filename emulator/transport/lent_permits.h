// Permits for programs of other hosts of this user (abi/permit.h): this host permits them to
// execute WRITEs and READs in the memory of its own programs. The other host has offered it
// (permit_offer.h). The rules of permits.h apply to both hosts.
//
// The other host may give a slot to another QP, after it has destroyed the one that had the slot.
// The requests that were not counted before are then lost for this host's counters.
#pragma once

#include <cstddef>
#include <vector>

#include "emulator/transport/engine.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/permit_offer.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

class LentPermits {
 public:
  // The most QPs that have lent a permit in their present lives. EndAll looks at each of them.
  static constexpr size_t kMaxLent = 256;

  LentPermits(const Engine::Environment& environment, PayloadOwner& payloads,
              EngineCounters& counters)
      : environment_(environment), payloads_(payloads), counters_(counters) {}

  // Lends a permit for requests to the QP, if no request needs this host. `flow` is that of the
  // offer. Call Settle before.
  void Lend(QpContext& context, const wire::UdpFlow& flow, const PermitOffer& offer,
            const Engine::OpenJobPage& page_of);
  // Counts what was executed, before a request of the QP's peer is handled. A request that needs
  // this host ends the permit.
  void RequestArrives(QpContext& context, const Train& request) {
    if (context.lent) Interrupt(context, request);
  }
  // Counts the executed requests of one QP, or of all QPs.
  void Settle(QpContext& context);
  void Settle();
  // Ends all permits, as Permits::EndAll does. A thread that was stopped behind its copy counts the
  // request later, before it posts another one. So the loans stay.
  void EndAll();
  // The QP begins another life, or is destroyed. Call EndAll before.
  void Forget(QpContext& context);

 private:
  bool MayLend(const QpContext& context, const wire::UdpFlow& flow, const PermitOffer& offer) const;
  // Returns a permit without a number. Its pid is 0 if the other program must not execute requests.
  Permit PermitFor(const QpContext& context, const PermitOffer& offer) const;
  void Interrupt(QpContext& context, const Train& request);
  void DropEnded();

  const Engine::Environment& environment_;
  PayloadOwner& payloads_;
  EngineCounters& counters_;
  std::vector<QpContext*> lenders_;  // those with QpContext::lent
};

}  // namespace rdmaemu::transport
