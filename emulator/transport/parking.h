// Holds trains between local QPs while a program's thread copies their payload (copy_jobs.h), and
// requests while READ responses before them are on their way (Responder::AwaitsReads). Also holds
// the trains behind them, to keep the order. Delivers trains in order when their copies have ended.
// The host makes a copy that no thread made.
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
  // `deliver` handles a train as if the train had just arrived.
  Parking(Core& core, Responder& responder, Completer& completer,
          std::function<void(Time, std::unique_ptr<Train>)> deliver)
      : core_(core), responder_(responder), completer_(completer), deliver_(std::move(deliver)) {}

  // Takes a train that must wait. The train has just arrived for the context's QP, whose state
  // allows the QP to execute it. Returns false when the train need not wait. The caller then keeps
  // the train and must deliver it now.
  bool Park(Time now, QpContext& context, std::unique_ptr<Train>& train);
  // Delivers trains that no longer need to wait, at most `trains`. Returns true when it delivered
  // any.
  bool Turn(Time now, uint32_t trains);
  // Returns true while copies are in progress. A copy's end makes no call.
  bool AwaitsCopies() const { return !waiting_.empty(); }
  std::optional<Time> NextDeadline() const;

  // Drops the waiting trains of a QP that accepts no more trains.
  void Drop(QpContext& context);

 private:
  // Returns true while the first train of the stream must wait for READ responses.
  bool IsHeld(QpContext& context, const ParkedStream& stream) const;
  // Offers the copies whose destination is already determined.
  void OfferAhead(Time now, QpContext& context, ParkedStream& stream);
  bool Offer(Time now, QpContext& context, ParkedStream& stream, size_t at);
  void EndOverlappingOffers(ParkedStream& stream, const JobSide& to);
  void TakeBackOffers(ParkedStream& stream);
  bool TurnStream(Time now, QpContext& context, ParkedStream& stream);

  Core& core_;
  Responder& responder_;
  Completer& completer_;
  std::function<void(Time, std::unique_ptr<Train>)> deliver_;
  std::vector<Handle> waiting_;  // QPs with parked trains
};

}  // namespace rdmaemu::transport
