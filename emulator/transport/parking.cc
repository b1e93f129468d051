#include "emulator/transport/parking.h"

#include <algorithm>

namespace rdmaemu::transport {

bool Parking::Park(Time now, QpContext& context, std::unique_ptr<Train>& train) {
  ParkedStream& stream = context.parked[train->info().request ? 0 : 1];
  const bool behind = !stream.trains.empty();
  const bool is_held = !behind && responder_.AwaitsReads(context, *train);
  if (!behind && !is_held && (train->is_bytes || train->length() < kMinJobBytes)) return false;
  stream.trains.Push({.train = std::move(train)});
  if (!is_held) OfferAhead(now, context, stream);
  if (!behind && !is_held && !stream.trains.front().ticket) {
    train = std::move(stream.trains.front().train);
    stream.trains.PopFront();
    stream.looked_at = 0;
    return false;
  }
  const Train& parked = *stream.trains.back().train;
  if (QpContext* origin = core_.Find(parked.origin)) {
    if (origin->epoch == parked.epoch) origin->requester.awaited_copies++;
  }
  if (!context.is_parking) {
    context.is_parking = true;
    waiting_.push_back(context.qp->handle);
  }
  return true;
}

bool Parking::IsHeld(QpContext& context, const ParkedStream& stream) const {
  const ParkedTrain& front = stream.trains.front();
  return !front.ticket && responder_.AwaitsReads(context, *front.train);
}

// A train that is behind a train without an offer is examined again when it is first. Its
// destination may depend on the train before it.
void Parking::OfferAhead(Time now, QpContext& context, ParkedStream& stream) {
  if (IsHeld(context, stream)) return;
  while (stream.looked_at < stream.trains.size()) {
    const size_t at = stream.looked_at;
    if (at > 0 && !stream.trains[at - 1].ticket) return;
    if (!Offer(now, context, stream, at) && at > 0) return;
    stream.looked_at++;
  }
}

bool Parking::Offer(Time now, QpContext& context, ParkedStream& stream, size_t at) {
  ParkedTrain& parked = stream.trains[at];
  const ParkedTrain* const before = at == 0 ? nullptr : &stream.trains[at - 1];
  const Train& train = *parked.train;
  if (parked.host_copies || train.is_bytes || train.length() < kMinJobBytes) return false;
  QpContext* requester = &context;
  QpContext* other = nullptr;
  if (train.info().request) {
    requester = core_.Find(train.origin);
    if (requester == nullptr || requester->epoch != train.epoch) return false;
    other = &context;
  } else {
    QueuePair* peer = core_.env.verbs.FindQp(train.source, context.qp->attr.dest_qp_num);
    if (peer == nullptr) return false;
    other = &core_.ContextOf(*peer);
  }
  Pieces into;
  if (train.info().request) {
    if (!responder_.Target(context, train, before, into, parked.behind)) return false;
  } else if (!completer_.Target(context, train, before, into)) {
    return false;
  }
  parked.to = SideOf(into);
  parked.ticket = core_.payloads.Offer(now, *requester->qp, *other->qp, train.pieces, into,
                                       before == nullptr ? JobTicket{} : before->ticket);
  return static_cast<bool>(parked.ticket);
}

bool Parking::Turn(Time now, uint32_t trains) {
  bool any = false;
  for (size_t i = 0; i < waiting_.size() && trains > 0;) {
    QpContext* context = core_.Find(waiting_[i]);
    bool progress = false;
    if (context != nullptr) {
      progress = TurnStream(now, *context, context->parked[0]);
      // A delivery may have destroyed the QP.
      context = core_.Find(waiting_[i]);
    }
    if (context != nullptr) progress |= TurnStream(now, *context, context->parked[1]);
    any |= progress;
    context = core_.Find(waiting_[i]);
    if (context == nullptr ||
        (context->parked[0].trains.empty() && context->parked[1].trains.empty())) {
      if (context != nullptr) context->is_parking = false;
      waiting_[i] = waiting_.back();
      waiting_.pop_back();
    } else if (!progress) {
      i++;
    }
    trains--;
  }
  return any;
}

// Ends the offers behind the first train that are for the same bytes as `to`, the destination of a
// copy that the host will make. The host makes these copies, too. So the copy that is to be made
// last is made last.
void Parking::EndOverlappingOffers(ParkedStream& stream, const JobSide& to) {
  for (size_t i = 1; i < stream.looked_at; i++) {
    ParkedTrain& parked = stream.trains[i];
    if (!parked.ticket || !parked.to.Touches(to.process, to.bounds)) continue;
    core_.payloads.End(parked.ticket);
    parked.ticket = {};
    parked.host_copies = true;
  }
}

// Takes back the offers behind the first train, because no thread has taken the first offer in
// time. Begins with the last offer: a thread takes offers in their order, so if it has taken one,
// it has taken those before it. The bytes of a message are therefore copied in their order, as
// programs expect that wait for the last byte of a WRITE.
void Parking::TakeBackOffers(ParkedStream& stream) {
  for (size_t i = stream.looked_at; i > 1; i--) {
    ParkedTrain& parked = stream.trains[i - 1];
    if (!parked.ticket) continue;
    if (!core_.payloads.TakeBack(parked.ticket)) return;
    parked.ticket = {};
    parked.host_copies = true;
  }
}

// Delivers the first train of the stream if the train is ready.
bool Parking::TurnStream(Time now, QpContext& context, ParkedStream& stream) {
  if (stream.trains.empty() || IsHeld(context, stream)) return false;
  OfferAhead(now, context, stream);
  ParkedTrain& front = stream.trains.front();
  if (front.ticket && core_.payloads.IsOverdue(now, front.ticket)) TakeBackOffers(stream);
  const JobOutcome outcome =
      front.ticket ? core_.payloads.OutcomeOf(now, front.ticket) : JobOutcome::kNotCopied;
  if (outcome == JobOutcome::kWaiting) return false;
  front.train->placed = outcome == JobOutcome::kCopied;
  front.train->was_parked = true;
  if (!front.train->placed) EndOverlappingOffers(stream, front.to);
  std::unique_ptr<Train> train = std::move(front.train);
  stream.trains.PopFront();
  stream.looked_at--;
  if (QpContext* origin = core_.Find(train->origin)) {
    if (origin->epoch == train->epoch) origin->requester.awaited_copies--;
  }
  deliver_(now, std::move(train));
  return true;
}

std::optional<Time> Parking::NextDeadline() const {
  Earliest next;
  for (const Handle handle : waiting_) {
    const QpContext* context = core_.Find(handle);
    if (context == nullptr) continue;
    for (const ParkedStream& stream : context->parked) {
      if (stream.trains.empty() || !stream.trains[0].ticket) continue;
      next.Note(core_.payloads.DeadlineOf(stream.trains[0].ticket));
    }
  }
  return next.deadline();
}

void Parking::Drop(QpContext& context) {
  for (ParkedStream& stream : context.parked) {
    for (; !stream.trains.empty(); stream.trains.PopFront()) {
      ParkedTrain& parked = stream.trains.front();
      if (parked.ticket) core_.payloads.End(parked.ticket);
      QpContext* origin = core_.Find(parked.train->origin);
      if (origin != nullptr && origin->epoch == parked.train->epoch) {
        origin->requester.awaited_copies--;
      }
      core_.GiveBack(std::move(parked.train));
    }
    stream.looked_at = 0;
  }
}

}  // namespace rdmaemu::transport
