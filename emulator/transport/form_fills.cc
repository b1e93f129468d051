#include "emulator/transport/form_fills.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdmaemu::transport {

// UC and UD requests complete before their receiver has them, so the program may then change the
// payload. A repeated request may complete by the response to its first packets. A READ response is
// read before later requests of its QP.
bool FormFills::Takes(Time now, const QpContext& requester, const Train& train) {
  return train.headers.transport == wire::TransportClass::kRc && train.info().request &&
         !train.is_bytes && PsnDiff(train.headers.psn, requester.requester.highest_psn) >= 0 &&
         payloads_.TakesHostCopy(now, *requester.qp, train.pieces);
}

void FormFills::Add(Time now, const QpContext& requester, const Train& train,
                    std::unique_ptr<UnfilledForm> form) {
  // A WRITE with immediate data takes a receive, which may be missing.
  const bool may_be_direct = train.info().write && !train.info().imm;
  const JobTicket ticket =
      payloads_.OfferToHost(now, *requester.qp, train.pieces, *form, may_be_direct);
  Fill fill{
      ticket, std::move(form), train.pieces, {train.origin, train.epoch, train.headers.psn}, now};
  if (!ticket) return CopyByHost(fill);
  fills_.push_back(std::move(fill));
}

void FormFills::TakeBackOverdue(Time now) {
  for (const Fill& overdue : fills_) {
    if (overdue.ticket && payloads_.IsOverdue(now, overdue.ticket)) {
      TakeBackFrom(overdue.from.process());
    }
  }
}

void FormFills::TakeBackFrom(ProcessId program) {
  for (auto fill = fills_.rbegin(); fill != fills_.rend(); ++fill) {
    if (fill->from.process() != program || !fill->ticket || payloads_.HasEnded(fill->ticket)) {
      continue;
    }
    if (!payloads_.TakeBack(fill->ticket)) return;
    fill->ticket = {};
  }
}

bool FormFills::Holds(Handle qp, uint64_t epoch) const {
  return std::ranges::any_of(held_, [&](const Fill& fill) {
    return fill.request.qp == qp && fill.request.epoch == epoch;
  });
}

bool FormFills::Delays(Handle qp, uint64_t epoch, Time since) const {
  return Holds(qp, epoch) || (!fills_.empty() && fills_.front().begun_at <= since);
}

void FormFills::Hold(Time now, Fill& fill) {
  fill.form->Abandon();
  fill.begun_at = now;
  held_.push_back(std::move(fill));
}

bool FormFills::TurnHeld(Time now) {
  return std::erase_if(held_, [&](Fill& fill) {
           if (payloads_.IsCopying(fill.ticket)) {
             if (now - fill.begun_at < kLongestFill) return false;
             fill.begun_at = now;
             if (!payloads_.TakeFromStopped(fill.ticket)) return false;
           }
           payloads_.End(fill.ticket);
           lost_.push_back(fill.request);
           return true;
         }) > 0;
}

bool FormFills::Turn(Time now) {
  const bool any_held_ended = TurnHeld(now);
  TakeBackOverdue(now);
  const size_t ended = std::erase_if(fills_, [&](Fill& fill) {
    switch (fill.ticket ? payloads_.OutcomeOf(now, fill.ticket) : JobOutcome::kNotCopied) {
      case JobOutcome::kWaiting:
        if (now - fill.begun_at < kLongestFill) return false;
        if (payloads_.IsDirect(fill.ticket) && payloads_.IsCopying(fill.ticket)) {
          Hold(now, fill);
        } else {
          Finish(fill, !payloads_.End(fill.ticket));
        }
        return true;
      case JobOutcome::kCopied:
        fill.form->Finish(true);
        return true;
      default:
        CopyByHost(fill);
        return true;
    }
  });
  return any_held_ended || ended > 0;
}

bool FormFills::AnyEnded() {
  return std::ranges::any_of(fills_,
                             [&](const Fill& fill) { return payloads_.HasEnded(fill.ticket); });
}

void FormFills::FinishAll() {
  std::vector<Fill> fills = std::exchange(fills_, {});
  std::vector<bool> stopped(fills.size());
  for (size_t i = fills.size(); i > 0; i--) stopped[i - 1] = !payloads_.Stop(fills[i - 1].ticket);
  for (size_t i = 0; i < fills.size(); i++) {
    if (stopped[i] && payloads_.IsDirect(fills[i].ticket)) {
      Hold(fills[i].begun_at, fills[i]);
    } else {
      payloads_.End(fills[i].ticket);
      Finish(fills[i], stopped[i]);
    }
  }
}

void FormFills::Finish(Fill& fill, bool stopped) {
  if (!stopped || fill.form->IsFilled()) return CopyByHost(fill);
  fill.form->Abandon();
  abandoned_.emplace_back(fill.from.process(), std::move(fill.form));
  lost_.push_back(fill.request);
}

void FormFills::Forget(ProcessId process) {
  std::erase_if(abandoned_, [&](const auto& each) { return each.first == process; });
  std::erase_if(held_, [&](const Fill& fill) {
    if (fill.from.process() != process) return false;
    payloads_.End(fill.ticket);
    return true;
  });
}

// The receiver may have read a form that its mark has shown. If the program has ended, the packets
// are lost (Placement::kProcessEnded).
void FormFills::CopyByHost(Fill& fill) {
  if (fill.form->IsFilled()) return fill.form->Finish(true);
  const Status read = fill.from.Read(memory_, fill.form->payload());
  fill.form->Finish(read.has_value());
  if (read || read.error().code == ESRCH) return;
  fill.request.is_unreadable = true;
  lost_.push_back(fill.request);
}

std::optional<Time> FormFills::NextDeadline() const {
  Earliest next;
  for (const Fill& fill : held_) next.Note(fill.begun_at + kLongestFill);
  for (const Fill& fill : fills_) {
    next.Note(payloads_.DeadlineOf(fill.ticket));
    next.Note(fill.begun_at + kLongestFill);
  }
  return next.deadline();
}

}  // namespace rdmaemu::transport
