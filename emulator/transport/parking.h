// Trains between local QPs whose payload a program's thread is copying (copy_jobs.h), and those
// behind them, which must not overtake. They are delivered, in order, when their copies are done; a
// copy that was not done is the host's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {

class Parking {
 public:
  // `deliver` hands a train to its QP, as if it had just come.
  Parking(Core& core, Responder& responder, Completer& completer,
          std::function<void(Time, std::unique_ptr<Train>)> deliver)
      : core_(core), responder_(responder), completer_(completer), deliver_(std::move(deliver)) {}

  // Takes the train, which has just come for the context's QP and may be executed by it, when it
  // has to wait. False: nothing was taken, it is to be delivered now.
  bool Park(Time now, QpContext& context, std::unique_ptr<Train>& train);
  // Delivers what need not wait any more, at most `trains`; true when it delivered some.
  bool Turn(Time now, uint32_t trains);
  // Copies are under way: their end makes no call.
  bool AwaitsCopies() const { return !waiting_.empty(); }
  std::optional<Time> NextDeadline() const;

  // The QP will take no more trains; those that wait are dropped.
  void Drop(QpContext& context);

 private:
  // Offers the copies whose places are known by now.
  void OfferAhead(Time now, QpContext& context, ParkedStream& stream);
  bool Offer(Time now, QpContext& context, ParkedStream& stream, size_t at);
  bool TurnStream(Time now, QpContext& context, ParkedStream& stream);

  Core& core_;
  Responder& responder_;
  Completer& completer_;
  std::function<void(Time, std::unique_ptr<Train>)> deliver_;
  std::vector<Handle> waiting_;  // QPs with parked trains
};

}  // namespace rdmaemu::transport
