#include "emulator/transport/direct_sends.h"

#include "emulator/transport/executions.h"
#include "emulator/transport/requester.h"
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {
namespace {

// Returns true if the peer would accept packets of the QP (Engine::Impl::Refusal).
bool IsConnected(const QpContext& context, const QpContext& peer) {
  const QueuePair &from = *context.qp, &to = *peer.qp;
  return to.path.destination == from.path.source && to.path.source == from.path.destination &&
         wire::PkeysMatch(from.device->PkeyAt(from.attr.pkey_index),
                          to.device->PkeyAt(to.attr.pkey_index)) &&
         (to.state() == IBV_QPS_RTS || peer.responder.established);
}

// Move both ends behind a message of one packet, and count its acknowledgement.
void CountAtResponder(QpContext& peer, uint64_t epoch) {
  PortCounters& port = peer.qp->device->counters;
  port.rcvd_pkts++;
  port.sent_pkts++;
  MoveResponder(peer, 1, 1);
  ResponderState& s = peer.responder;
  s.ack_psn = s.expected_psn;
  s.peer_epoch = epoch;
  s.nak_sent = false;
}
void CountAtRequester(QpContext& context) {
  PortCounters& port = context.qp->device->counters;
  port.sent_pkts++;
  port.rcvd_pkts++;
  MoveRequester(context, 1);
}

}  // namespace

void DirectSends::BeginTurn(QpContext& context) {
  peer_ = nullptr;
  is_addressed_ = false;
  const Engine::Environment& env = core_.env;
  if (!context.peer_is_local || context.qp->state() != IBV_QPS_RTS || !env.permits ||
      env.trace.wants_packets() || !env.permits()) {
    return;
  }
  QpContext* const peer = LocalPeerOf(env, context);
  if (peer != nullptr && IsConnected(context, *peer) && env.verbs.Carries(*peer->qp) &&
      env.verbs.Carries(*context.qp)) {
    peer_ = peer;
  }
}

bool DirectSends::HasPayload(const QpContext& context, const SendWqe& request) {
  if (request.is_inline || request.length == 0) return true;
  if (HasValidCopy(core_, context, request)) return true;
  // As in LoadData: the copy of the payload is valid if the keys map to the addresses of the SGEs.
  return core_.ResolveSges(*context.qp, request.sges, 0, request.length, 0, source_) ==
             IBV_WC_SUCCESS &&
         source_.IsAt(request.sges);
}

// Makes `train_` the packet of the request.
void DirectSends::Describe(const QpContext& context, const SendWqe& request) {
  if (!std::exchange(is_addressed_, true)) {
    AddressRc(context, wire::Operation::kSendOnly, train_);
    train_.is_bytes = true;
  }
  train_.headers.operation = DataOperation(request.opcode());
  train_.headers.immediate = request.wr.ex.imm_data;
  train_.headers.solicited = (request.wr.send_flags & IBV_SEND_SOLICITED) != 0;
  train_.bytes = request.data;
}

bool DirectSends::Place(QpContext& context, const SendWqe& request) {
  Describe(context, request);
  const RecvWqe& receive = *peer_->responder.receive;
  return request.length <= receive.length &&
         core_.ResolveReceive(*peer_->qp, receive, 0, request.length, destination_) ==
             IBV_WC_SUCCESS &&
         core_.payloads.PlaceReceived(*peer_, train_, {}, destination_) == Placement::kPlaced;
}

bool DirectSends::Execute(Time now, QpContext& context, SendWqe& request) {
  QpContext& peer = *peer_;
  if (core_.doors.memory || core_.doors.packets || core_.doors.completions ||
      !AwaitsNext(peer, context) || !HasPayload(context, request)) {
    return false;
  }
  // The acknowledgements of the peer's own requests precede the message. They may still be trains.
  completer_.AcknowledgeBefore(now, peer, context.responder.ack_psn);
  peer.responder.receive = core_.env.verbs.TakeReceive(*peer.qp);
  if (!peer.responder.receive || !Place(context, request)) return false;
  CountAtResponder(peer, context.epoch);
  core_.lanes.ShowExecuted(peer);
  if (!FinishReceive(core_, now, peer, &train_, IBV_WC_SUCCESS, request.length)) {
    // The queue has overrun. The responder then sends no acknowledgement (Responder::Accept), so
    // the request fails as one that is lost.
    core_.FailQp(now, *peer.qp, IBV_EVENT_QP_FATAL);
    return false;
  }
  CountAtRequester(context);
  core_.counters.local_packets += 2;
  executed_++;
  completer_.Finish(now, context);
  return true;
}

}  // namespace rdmaemu::transport
