// Gives each train that arrives to the QPs that take it, or drops it. The train comes from the wire
// or from a QP of this host.
#pragma once

#include <memory>

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"
#include "emulator/transport/parking.h"
#include "emulator/transport/responder.h"
#include "emulator/transport/unreliable.h"

namespace rdmaemu::transport {

class Dispatcher {
 public:
  Dispatcher(Core& core, Completer& completer, Responder& responder, Unreliable& unreliable,
             Parking& parking)
      : core_(core),
        completer_(completer),
        responder_(responder),
        unreliable_(unreliable),
        parking_(parking) {}

  // Gives the train to its QP, or to all receivers of its multicast group on this host. `local`
  // owns a train of a QP of this host, otherwise it is nullptr. The function may take the train
  // from it, when the train must wait.
  void Deliver(Time now, Train& train, std::unique_ptr<Train>* local);
  // Gives the train to this QP.
  void Dispatch(Time now, QueuePair& qp, Train& train, std::unique_ptr<Train>* local);
  // Gives a train of several packets to this RC QP. Returns false when the packets must be handled
  // one by one (WireIn).
  bool DispatchRun(Time now, QueuePair& qp, Train& train);

  // Returns the counter of the reason why the QP refuses a packet. nullptr: the QP accepts it.
  // Counts a wrong P_Key, if `counts`.
  uint64_t* Refusal(const QueuePair& qp, const Train& train, bool counts = true);
  // Counts what the peer's program has executed before this request.
  void RequestArrives(QpContext& context, const Train& request) {
    core_.lent_permits.RequestArrives(context, request);
    core_.lanes.RequestArrives(context, request);
  }

 private:
  bool HandleRun(Time now, QpContext& context, Train& train);

  Core& core_;
  Completer& completer_;
  Responder& responder_;
  Unreliable& unreliable_;
  Parking& parking_;
};

}  // namespace rdmaemu::transport
