// Handles runs of packets together. The responder resolves the destination of a packet before it
// handles the packet, and executes several packets of one message at once.
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {

bool Responder::HandleRun(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  const bool writable = (context.qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
  if (train.headers.psn != s.expected_psn || !InSequence(context, train)) return false;
  if (!info.send && !(info.write && writable)) return false;
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

bool Responder::Target(QpContext& context, const Train& train, const uint32_t* after,
                       Pieces& into) {
  ResponderState& s = context.responder;
  const QueuePair& qp = *context.qp;
  const wire::OpcodeInfo& info = train.info();
  if (train.headers.psn != (after != nullptr ? *after : s.expected_psn)) return false;
  if (after == nullptr && !InSequence(context, train)) return false;
  const uint64_t bytes = train.length();
  if (info.write) {
    if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) return false;
    const auto target = core_.env.verbs.ResolveRemote(
        qp, train.headers.rkey, train.headers.remote_address, bytes, IBV_ACCESS_REMOTE_WRITE);
    if (!target) return false;
    into.Add(*target);
    core_.payloads.PlaceWaiting(context, into);
    return true;
  }
  // A SEND continues where the train before it ended. That position is not known yet.
  if (!info.send || after != nullptr) return false;
  if (train.begins && !s.receive) s.receive = core_.env.verbs.TakeReceive(*context.qp);
  const uint64_t offset = train.begins ? 0 : s.received;
  if (!s.receive || offset + bytes > s.receive->length ||
      core_.ResolveReceive(context, offset, bytes, into) != IBV_WC_SUCCESS) {
    return false;
  }
  core_.payloads.PlaceWaiting(context, into);
  return true;
}

}  // namespace rdmaemu::transport
