#include "emulator/transport/place.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rdmaemu::transport {
namespace {

Placement Written(const Status& status) {
  if (status) return Placement::kPlaced;
  return status.error().code == ESRCH ? Placement::kDestinationEnded : Placement::kDestinationGone;
}

Placement PlaceNow(Memory& memory, Train& train, const Pieces& into) {
  if (train.placed) return Placement::kPlaced;
  if (!train.parts.empty()) return Written(into.WriteParts(memory, train.parts));
  if (train.is_bytes) return Written(into.Write(memory, train.bytes));
  const Status copied = train.pieces.CopyTo(memory, into);
  if (copied) return Placement::kPlaced;
  if (!into.Reachable(memory, /*write=*/true)) return Written(copied);
  train.source_failed = true;
  return Placement::kSourceGone;
}

// Where the whole of a small message may wait; nullptr when it must be placed now.
ReceiveSlot* SlotFor(Core& core, QpContext& context, const Train& train, const Pieces& into) {
  // A completion that is delayed, doubled or lost has no place beside it that lasts.
  if (core.doors.completions || core.doors.memory || !train.begins || !train.ends ||
      !train.parts.empty() || into.length() > kSlabBytes || into.empty() ||
      into.ranges().size() > ReceiveSlot::kMaxPieces ||
      !into.IsOf(context.qp->share().sole_process)) {
    return nullptr;
  }
  return core.env.verbs.NextReceiveSlot(*context.qp);
}

}  // namespace

Placement Place(Core& core, Train& train, const Pieces& into) {
  return PlaceNow(core.env.memory, train, into);
}

Placement PlaceReceived(Core& core, QpContext& context, Train& train,
                        std::span<const std::byte> before, const Pieces& into) {
  ReceiveSlot* slot = SlotFor(core, context, train, into);
  if (slot == nullptr) {
    if (before.empty()) return PlaceNow(core.env.memory, train, into);
    Pieces header = into, payload = into;
    header.Truncate(before.size());
    payload.DropFront(before.size());
    const Placement placed = PlaceNow(core.env.memory, train, payload);
    if (placed != Placement::kPlaced) return placed;
    return Written(header.Write(core.env.memory, before));
  }
  if (!before.empty()) std::memcpy(slot->payload, before.data(), before.size());
  const std::span<std::byte> room(slot->payload + before.size(), train.length());
  if (train.is_bytes) {
    if (!room.empty()) std::memcpy(room.data(), train.bytes.data(), room.size());
  } else if (!train.pieces.Read(core.env.memory, room)) {
    train.source_failed = true;
    return Placement::kSourceGone;
  }
  ResponderState& s = context.responder;
  if (context.qp->recv_cq->ring.Empty()) s.waiting = {};
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

void SettleBefore(Core& core, QpContext& context, const MemoryRange& range) {
  WaitingBytes& waiting = context.responder.waiting;
  if (range.address >= waiting.high || waiting.low >= range.address + range.length) return;
  core.env.verbs.SettlePayloads(*context.qp);
  waiting = {};
}

}  // namespace rdmaemu::transport
