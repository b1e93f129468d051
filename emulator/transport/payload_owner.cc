#include "emulator/transport/payload_owner.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "emulator/abi/send_entry.h"
#include "emulator/transport/placing_patience.h"

namespace rdmaemu::transport {
namespace {

Placement Written(const Status& status) {
  if (status) return Placement::kPlaced;
  return status.error().code == ESRCH ? Placement::kProcessEnded : Placement::kDestinationGone;
}

}  // namespace

std::span<const std::byte> TakenAtPost(const QueuePair& qp, uint32_t index, uint32_t state,
                                       uint32_t sges, uint32_t bytes) {
  if (state != kPayloadTaken || bytes > kSlabBytes || qp.share().sole_process == ProcessId::kNone) {
    return {};
  }
  return {qp.send_ring.SlotAs<SendEntry>(index)->Taken(sges), bytes};
}

// ---- writing payloads

Placement PayloadOwner::Write(Train& train, const Pieces& into) {
  if (train.placed) return Placement::kPlaced;
  if (!train.parts.empty()) return Written(into.WriteParts(memory_, train.parts));
  if (train.is_bytes) return Written(into.Write(memory_, train.bytes));
  const Status copied = train.pieces.CopyTo(memory_, into);
  if (copied) return Placement::kPlaced;
  if (copied.error().code == ESRCH) return Placement::kProcessEnded;
  if (!into.Reachable(memory_, /*write=*/true)) return Written(copied);
  train.source_failed = true;
  return Placement::kSourceGone;
}

Placement PayloadOwner::Place(QpContext& context, Train& train, const Pieces& into) {
  PlaceWaiting(context, into);
  return Write(train, into);
}

// Returns the slot for a whole small message. nullptr: the message must be written to memory now.
ReceiveSlot* PayloadOwner::SlotFor(const QpContext& context, const Train& train,
                                   const Pieces& into) {
  // A completion that is delayed, duplicated or lost has no lasting slot.
  if (doors_.completions || doors_.memory || !train.begins || !train.ends || !train.parts.empty() ||
      into.length() > kSlabBytes || into.empty() ||
      into.ranges().size() > ReceiveSlot::kMaxPieces ||
      !into.IsOf(context.qp->share().sole_process)) {
    return nullptr;
  }
  CompletionQueue& cq = *context.qp->recv_cq;
  GroupShare& share = *cq.context->share;
  cq.TakeFromLane();
  if (share.sole_process == ProcessId::kNone || !cq.HasRoom()) return nullptr;
  if (!cq.has_waiting) {
    cq.has_waiting = true;
    share.waiting.push_back(&cq);
  }
  ReceiveSlot& next = cq.slots[cq.ring.Next(cq.producer)];
  PrefetchToWrite(&next);
  PrefetchToWrite(next.payload);
  return &cq.slots[cq.producer];
}

Placement PayloadOwner::PlaceReceived(QpContext& context, Train& train,
                                      std::span<const std::byte> before, const Pieces& into) {
  ReceiveSlot* slot = SlotFor(context, train, into);
  if (slot == nullptr) {
    PlaceWaiting(context, into);
    if (before.empty()) return Write(train, into);
    Pieces header = into, payload = into;
    header.Truncate(before.size());
    payload.DropFront(before.size());
    const Placement placed = Write(train, payload);
    if (placed != Placement::kPlaced) return placed;
    return Written(header.Write(memory_, before));
  }
  if (!before.empty()) std::memcpy(slot->payload, before.data(), before.size());
  const std::span<std::byte> room(slot->payload + before.size(), train.length());
  if (train.is_bytes) {
    if (!room.empty()) std::memcpy(room.data(), train.bytes.data(), room.size());
  } else if (const Status read = train.pieces.Read(memory_, room); !read) {
    if (read.error().code == ESRCH) return Placement::kProcessEnded;
    train.source_failed = true;
    return Placement::kSourceGone;
  }
  ResponderState& s = context.responder;
  if (context.qp->recv_cq->IsDrained()) s.waiting = {};
  slot->pieces = static_cast<uint32_t>(into.ranges().size());
  for (size_t i = 0; i < into.ranges().size(); i++) {
    const MemoryRange& range = into.ranges()[i];
    slot->to[i] = {range.address, range.length};
    s.waiting.low = std::min(s.waiting.low, range.address);
    s.waiting.high = std::max(s.waiting.high, range.address + range.length);
  }
  slot->SetState(ReceiveSlot::kWaiting);
  s.payload_waits = true;
  return Placement::kPlaced;
}

void PayloadOwner::PlaceWaiting(QpContext& context, const MemoryRange& range) {
  context.qp->recv_cq->batch->Publish();
  WaitingBytes& waiting = context.responder.waiting;
  if (range.address >= waiting.high || waiting.low >= range.address + range.length) return;
  PlaceBeside(*context.qp->recv_cq);
  waiting = {};
}

// Places the payloads beside the queue's completions. The queue stays in its group's list, which
// PlaceAll empties.
void PayloadOwner::PlaceBeside(CompletionQueue& cq) {
  if (!cq.has_waiting) return;
  GroupShare& share = *cq.context->share;
  const ProcessId process = share.sole_process;
  PlacingPatience patience(memory_, share);
  uint32_t at = cq.ring.Consumer();
  for (uint32_t left = cq.ring.Distance(at, cq.producer); left > 0; left--, at = cq.ring.Next(at)) {
    ReceiveSlot& slot = cq.slots[at];
    if (!slot.Claim()) {
      std::atomic_ref state(slot.state);
      (void)patience.Await(
          [&] { return state.load(std::memory_order_acquire) != ReceiveSlot::kTaken; });
      continue;
    }
    // The program may change the slot at the same time. It then changes only the destination of its
    // own payload.
    std::array<MemoryRange, ReceiveSlot::kMaxPieces> to;
    size_t pieces = 0;
    uint64_t room = kSlabBytes;
    for (size_t i = 0; i < to.size() && i < slot.pieces; i++) {
      to[i] = {slot.to[i].address, std::min(slot.to[i].length, room)};
      room -= to[i].length;
      pieces++;
    }
    // Memory that was unmapped meanwhile gets no bytes. Pinned pages without a mapping would not be
    // visible either.
    (void)memory_.Write(process, std::span(to).first(pieces),
                        std::span(slot.payload).first(kSlabBytes - room));
    slot.SetState(ReceiveSlot::kPlaced);
  }
}

void PayloadOwner::PlaceAll(GroupShare& share) {
  for (CompletionQueue* cq : share.waiting) {
    PlaceBeside(*cq);
    cq->has_waiting = false;
  }
  share.waiting.clear();
}

// ---- quiescing

void PayloadOwner::Quiesce(const PayloadScope& scope) {
  std::visit([this](const auto& one) { QuiesceScope(one); }, scope);
}

void PayloadOwner::QuiesceScope(const QpPayloads& scope) {
  PlaceBeside(*scope.qp.recv_cq);
  jobs_.WithdrawIf([&](const JobOffer& offer) {
    return offer.requester == scope.qp.handle || offer.other == scope.qp.handle;
  });
}

void PayloadOwner::QuiesceScope(const QueuePayloads& scope) {
  if (!scope.cq.has_waiting) return;
  PlaceBeside(scope.cq);
  scope.cq.has_waiting = false;
  std::erase(scope.cq.context->share->waiting, &scope.cq);
}

void PayloadOwner::QuiesceScope(const RegionPayloads& scope) {
  const MemoryRegion& region = scope.region;
  PlaceAll(*region.pd->context->share);
  QuiesceScope(RemotePayloads{region.process, {region.user_address, region.length}});
}

// The receive slab needs no action, because remote access never uses it.
void PayloadOwner::QuiesceScope(const RemotePayloads& scope) {
  jobs_.WithdrawIf(
      [&](const JobOffer& offer) { return offer.Touches(scope.process, scope.range); });
}

void PayloadOwner::QuiesceScope(const ProcessPayloads& scope) {
  jobs_.WithdrawIf([&](const JobOffer& offer) {
    return offer.from.process == scope.process || offer.to.process == scope.process;
  });
}

void PayloadOwner::QuiesceScope(const GroupPayloads& scope) {
  GroupShare& share = scope.share;
  if (scope.ends) {
    for (CompletionQueue* cq : share.waiting) cq->has_waiting = false;
    share.waiting.clear();
    jobs_.Forget(share);
    return;
  }
  PlaceAll(share);
  QuiesceScope(ProcessPayloads{share.sole_process});
}

}  // namespace rdmaemu::transport
