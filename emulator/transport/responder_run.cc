// Handles runs of packets together. The responder resolves the destination of a packet before it
// handles the packet, and executes several packets of one message at once.
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {
namespace {

// Returns the position of the receive that the QP takes next. Unknown for an SRQ.
ReceiveCursor NextReceive(const QueuePair& qp) {
  if (!qp.recv_ring) return {};
  return {.known = true, .index = qp.recv_ring.Consumer(), .offset = 0};
}

}  // namespace

bool Responder::HandleRun(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  const bool writable = (context.qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
  if (train.headers.psn != s.expected_psn || !InSequence(context, train)) return false;
  if (!info.send && !(info.write && writable)) return false;
  if (!SendReadsBefore(now, context, train)) return false;
  if (info.send && train.begins && !s.receive) {
    s.receive = core_.env.verbs.TakeReceive(*context.qp);
    if (!s.receive) return false;
  }
  if (info.write) {
    if (!TakeWriteLength(context, train) ||
        s.write_length > context.qp->device->profile.most_request_bytes() ||
        WriteToRemote(context, train) != Placement::kPlaced) {
      return false;
    }
  } else if (!SendLengthFits(context, train) ||
             WriteToReceive(context, train) != Placement::kPlaced) {
    return false;
  }
  s.nak_sent = false;
  Accept(now, context, train);
  return true;
}

bool Responder::Target(QpContext& context, const Train& train, const ParkedTrain* before,
                       Pieces& into, ReceiveCursor& behind) {
  const ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  if (before == nullptr) {
    if (train.headers.psn != s.expected_psn || !InSequence(context, train)) return false;
  } else {
    const Train& previous = *before->train;
    // The invalidation may end the right to the destination.
    if (train.headers.psn != PsnAdd(previous.last_psn(), 1) || previous.info().ieth) return false;
    if (train.begins != previous.ends || (!train.begins && info.send != previous.info().send)) {
      return false;
    }
  }
  const bool known = info.write  ? TargetWrite(context, train, before, into, behind)
                     : info.send ? TargetSend(context, train, before, into, behind)
                                 : false;
  if (known) core_.payloads.PlaceWaiting(context, into);
  return known;
}

bool Responder::TargetWrite(QpContext& context, const Train& train, const ParkedTrain* before,
                            Pieces& into, ReceiveCursor& behind) {
  const QueuePair& qp = *context.qp;
  if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) return false;
  const auto target =
      core_.env.verbs.ResolveRemote(qp, train.headers.rkey, train.headers.remote_address,
                                    train.length(), IBV_ACCESS_REMOTE_WRITE);
  if (!target) return false;
  into.Add(*target);
  behind = before != nullptr           ? before->behind
           : context.responder.receive ? ReceiveCursor{}
                                       : NextReceive(qp);
  if (behind.known && train.info().imm && train.ends) {
    behind.known = core_.env.verbs.PeekReceive(qp, behind.index).has_value();
    behind.index = qp.recv_ring.Next(behind.index);
  }
  return true;
}

bool Responder::TargetSend(QpContext& context, const Train& train, const ParkedTrain* before,
                           Pieces& into, ReceiveCursor& behind) {
  ResponderState& s = context.responder;
  const QueuePair& qp = *context.qp;
  std::optional<RecvWqe> posted;
  if (before == nullptr) {
    if (train.begins && !s.receive) s.receive = core_.env.verbs.TakeReceive(*context.qp);
    behind = NextReceive(qp);
    if (behind.known) behind.index = qp.recv_ring.Previous(behind.index);
    behind.known = true;
    behind.offset = train.begins ? 0 : s.received;
  } else {
    behind = before->behind;
    if (!behind.known) return false;
    posted = core_.env.verbs.PeekReceive(qp, behind.index);
    if (train.begins && !posted) return false;
  }
  // The receive of a message in progress may have been taken since the cursor was set.
  const auto& receive = posted ? posted : s.receive;
  const uint64_t bytes = train.length();
  if (!receive || behind.offset + bytes > receive->length ||
      core_.ResolveReceive(qp, *receive, behind.offset, bytes, into) != IBV_WC_SUCCESS) {
    return false;
  }
  behind.offset += bytes;
  if (!train.ends) return true;
  if (qp.recv_ring) behind.index = qp.recv_ring.Next(behind.index);
  behind.offset = 0;
  return true;
}

}  // namespace rdmaemu::transport
