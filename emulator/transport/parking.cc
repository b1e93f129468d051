#include "emulator/transport/parking.h"

#include <algorithm>

namespace rdmaemu::transport {

bool Parking::Park(Time now, QpContext& context, std::unique_ptr<Train>& train) {
  ParkedStream& stream = context.parked[train->info().request ? 0 : 1];
  const bool behind = !stream.trains.empty();
  if (!behind && (train->is_bytes || train->length() < kMinJobBytes)) return false;
  ParkedTrain parked{std::move(train), {}, false};
  if (!behind) stream.in_order = true;
  const bool offered = Offer(now, context, stream, parked);
  if (!offered && !behind) {
    train = std::move(parked.train);
    return false;
  }
  if (QpContext* origin = core_.Find(parked.train->origin)) {
    if (origin->epoch == parked.train->epoch) origin->requester.awaited_copies++;
  }
  stream.in_order = offered;
  stream.next_psn = PsnAdd(parked.train->last_psn(), 1);
  stream.trains.Push(std::move(parked));
  if (!context.is_parking) {
    context.is_parking = true;
    waiting_.push_back(context.qp->handle);
  }
  return true;
}

// The copy of a train at the front, or right behind trains that all are being copied.
bool Parking::Offer(Time now, QpContext& context, ParkedStream& stream, ParkedTrain& parked) {
  const Train& train = *parked.train;
  if (train.is_bytes || train.length() < kMinJobBytes || !stream.in_order) return false;
  const bool front = stream.trains.empty() || &parked == &stream.trains.front();
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
  const bool known =
      train.info().request
          ? responder_.Target(context, train, front ? nullptr : &stream.next_psn, into)
          : front && completer_.Target(context, train, into);
  if (!known) return false;
  parked.ticket = jobs_.Offer(now, requester->qp->share(), other->qp->share(), train.pieces, into);
  return static_cast<bool>(parked.ticket);
}

bool Parking::Turn(Time now, uint32_t trains) {
  bool any = false;
  for (size_t i = 0; i < waiting_.size() && trains > 0;) {
    QpContext* context = core_.Find(waiting_[i]);
    bool progress = false;
    if (context != nullptr) {
      progress = TurnStream(now, *context, context->parked[0]);
      // The QP may have gone with what was delivered.
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

// Delivers the stream's front when it is ready.
bool Parking::TurnStream(Time now, QpContext& context, ParkedStream& stream) {
  if (stream.trains.empty()) return false;
  ParkedTrain& front = stream.trains.front();
  JobOutcome outcome = JobOutcome::kNotCopied;
  if (front.ticket) {
    outcome = jobs_.Look(now, front.ticket);
  } else if (!front.tried) {
    front.tried = true;
    stream.in_order = true;
    if (Offer(now, context, stream, front)) outcome = JobOutcome::kWaiting;
    stream.in_order = false;
  }
  if (outcome == JobOutcome::kWaiting) return false;
  front.train->placed = outcome == JobOutcome::kCopied;
  std::unique_ptr<Train> train = std::move(front.train);
  if (front.ticket) jobs_.GiveBack(front.ticket);
  stream.trains.PopFront();
  if (QpContext* origin = core_.Find(train->origin)) {
    if (origin->epoch == train->epoch) origin->requester.awaited_copies--;
  }
  deliver_(now, std::move(train));
  return true;
}

std::optional<Time> Parking::NextDeadline() const {
  std::optional<Time> next;
  for (const Handle handle : waiting_) {
    const QpContext* context = core_.Find(handle);
    if (context == nullptr) continue;
    for (const ParkedStream& stream : context->parked) {
      if (stream.trains.empty() || !stream.trains[0].ticket) continue;
      const Time at = CopyJobs::LookAgainAt(stream.trains[0].ticket);
      if (CopyJobs::IsOffered(stream.trains[0].ticket) && (!next || at < *next)) next = at;
    }
  }
  return next;
}

void Parking::End(ParkedTrain& parked) {
  if (!parked.ticket) return;
  jobs_.Withdraw(parked.ticket);
  jobs_.GiveBack(parked.ticket);
  parked.ticket = {};
  parked.tried = true;
}

void Parking::Drop(QpContext& context) {
  for (ParkedStream& stream : context.parked) {
    for (; !stream.trains.empty(); stream.trains.PopFront()) {
      ParkedTrain& parked = stream.trains.front();
      End(parked);
      QpContext* origin = core_.Find(parked.train->origin);
      if (origin != nullptr && origin->epoch == parked.train->epoch) {
        origin->requester.awaited_copies--;
      }
      core_.GiveBack(std::move(parked.train));
    }
  }
}

template <class Predicate>
void Parking::WithdrawIf(Predicate concerns) {
  for (const Handle handle : waiting_) {
    QpContext* context = core_.Find(handle);
    if (context == nullptr) continue;
    for (ParkedStream& stream : context->parked) {
      for (size_t i = 0; i < stream.trains.size(); i++) {
        if (concerns(stream.trains[i])) End(stream.trains[i]);
      }
    }
  }
}

void Parking::WithdrawFrom(const QpContext& origin) {
  WithdrawIf([&](const ParkedTrain& parked) { return parked.train->origin == origin.qp->handle; });
}

void Parking::WithdrawFor(ProcessId process) {
  WithdrawIf([&](const ParkedTrain& parked) {
    return parked.ticket && CopyJobs::Concerns(parked.ticket, process);
  });
}

}  // namespace rdmaemu::transport
