// The responder's responses: ACKs and NAKs, which may be collected, and READ responses, which wait
// in a queue with the responses behind them.
#include <algorithm>

#include "emulator/transport/responder.h"

namespace rdmaemu::transport {
namespace {

// Responses of one QP that may wait behind READ responses, in addition to two per resource.
constexpr size_t kSpareResponses = 8;

wire::Operation OperationOf(Response::Kind kind) {
  switch (kind) {
    case Response::Kind::kAtomic:
      return wire::Operation::kAtomicAcknowledge;
    case Response::Kind::kEmptyRead:
    case Response::Kind::kRead:
      return wire::Operation::kReadResponseOnly;
    default:
      return wire::Operation::kAcknowledge;
  }
}

}  // namespace

void Responder::Acknowledge(Time now, QpContext& context, uint32_t psn) {
  ResponderState& s = context.responder;
  // Most packets only move the ACK that the QP owes already.
  if (s.collected_ack && s.responses.empty()) {
    s.collected_ack->psn = psn;
    s.collected_ack->msn = s.msn;
    return;
  }
  Answer(now, context,
         {.kind = Response::Kind::kAck,
          .syndrome = wire::kAethUnlimitedCredits,
          .psn = psn,
          .msn = s.msn});
}

void Responder::Answer(Time now, QpContext& context, const Response& response) {
  ResponderState& s = context.responder;
  const auto is_plain = [](const Response& r) {
    return r.kind == Response::Kind::kAck && r.syndrome == wire::kAethUnlimitedCredits;
  };
  if (collecting_acks_ && s.responses.empty() && is_plain(response)) {
    if (!s.collected_ack) owing_acks_.push_back(&context);
    s.collected_ack = response;
    return;
  }
  SendCollectedAck(now, context);
  if (s.responses.empty()) return Emit(now, context, response);
  if (is_plain(response) && is_plain(s.responses.back())) {
    s.responses.back() = response;
  } else {
    Enqueue(s, response);
  }
}

void Responder::Enqueue(ResponderState& s, const Response& response) {
  if (s.responses.size() < s.resources.size() * 2 + kSpareResponses) {
    s.responses.Push(response);
  } else {
    core_.counters.dropped_answer_queue_full++;
  }
}

void Responder::SendCollectedAck(Time now, QpContext& context) {
  std::optional<Response> ack;
  ack.swap(context.responder.collected_ack);
  if (!ack) return;
  core_.lanes.EndArrivals(now, context);
  Emit(now, context, *ack);
}

void Responder::SendCollectedAcks(Time now) {
  // Another response may already have sent a QP's collected ACK.
  for (QpContext* context : owing_acks_) SendCollectedAck(now, *context);
  owing_acks_.clear();
  collecting_acks_ = false;
}

void Responder::Address(QpContext& context, wire::Operation operation, uint32_t psn) {
  AddressRc(context, operation, train_);
  train_.headers.psn = psn;
  train_.epoch = context.responder.peer_epoch;
  train_.answerer = context.qp->handle;
  train_.answerer_epoch = context.epoch;
}

void Responder::Emit(Time now, QpContext& context, const Response& response) {
  Address(context, OperationOf(response.kind), response.psn);
  train_.headers.syndrome = response.syndrome;
  train_.headers.msn = response.msn;
  train_.headers.original = response.original;
  if (!context.peer_is_local) core_.env.verbs.completions().Publish();
  // A response that finds no room is lost. The requester sends its request again.
  if (!core_.Transmit(now, *context.qp->device, train_, context.peer_is_local, kMaxLocalTrains)) {
    core_.counters.dropped_answer_queue_full++;
  }
}

bool Responder::MayStillRead(const QpContext& context, const Train& train) const {
  if ((context.qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0) return false;
  return core_.env.verbs
      .ResolveRemote(*context.qp, train.headers.rkey, train.headers.remote_address, train.length(),
                     IBV_ACCESS_REMOTE_READ)
      .has_value();
}

// Ends a READ whose region or right ended while the READ was in progress. The status is that of a
// READ that begins afterwards.
void Responder::FailRead(Time now, QpContext& context, uint32_t psn) {
  context.responder.responses.Clear();
  if ((context.qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, psn, IBV_WC_REM_INV_REQ_ERR);
  }
  Fatal(now, context, wire::NakCode::kRemoteAccess, psn, IBV_WC_REM_ACCESS_ERR);
}

bool Responder::EmitRead(Time now, QpContext& context, Response& response, uint32_t packets) {
  const uint32_t left = PacketsFor(response.length, context.mtu_bytes);
  packets = std::min(packets, left);
  const uint64_t bytes = std::min<uint64_t>(uint64_t{packets} * context.mtu_bytes, response.length);
  Address(context, wire::Operation::kReadResponseOnly, response.psn);
  train_.headers.syndrome = response.syndrome;
  train_.headers.msn = response.msn;
  train_.begins = response.begins;
  train_.ends = packets == left;
  train_.packets = packets;
  if (bytes > 0) {
    const auto source = core_.env.verbs.ResolveRemote(*context.qp, response.rkey, response.address,
                                                      response.length, IBV_ACCESS_REMOTE_READ);
    if (!source) {
      FailRead(now, context, response.psn);
      return false;
    }
    train_.pieces.Add({source->process, {source->range.address, bytes}});
    train_.headers.rkey = response.rkey;
    train_.headers.remote_address = response.address;
  }
  const Status sent =
      core_.Transmit(now, *context.qp->device, train_, context.peer_is_local, kMaxLocalReads);
  if (!sent) {
    if (sent.error().code == EAGAIN) return false;
    FailRead(now, context, response.psn);
    return false;
  }
  if (context.peer_is_local && bytes > 0) context.responder.reads_queued = core_.LocalQueued();
  response.begins = false;
  response.psn = PsnAdd(response.psn, packets);
  response.address += bytes;
  response.length -= static_cast<uint32_t>(bytes);
  return true;
}

bool Responder::Turn(Time now, QpContext& context) {
  ResponderState& s = context.responder;
  uint32_t budget = context.peer_is_local ? kTrainsPerTurn : kWirePacketsPerTurn;
  while (!s.responses.empty()) {
    if (budget == 0) return true;
    Response& response = s.responses.front();
    if (response.kind != Response::Kind::kRead) {
      Emit(now, context, response);
      s.responses.PopFront();
      budget--;
      continue;
    }
    const uint32_t most =
        context.peer_is_local
            ? std::max(1u, static_cast<uint32_t>(kMaxTrainBytes / context.mtu_bytes))
            : budget;
    if (!EmitRead(now, context, response, most)) return !s.responses.empty();
    if (train_.ends) s.responses.PopFront();
    budget -= context.peer_is_local ? 1 : train_.packets;
  }
  return false;
}

bool Responder::AwaitsReads(QpContext& context, const Train& request) const {
  ResponderState& s = context.responder;
  if (!request.info().request || request.info().read) return false;
  if (!s.responses.empty()) return true;
  if (s.reads_queued == 0) return false;
  if (core_.LocalTaken() < s.reads_queued) return true;
  // A response may wait at the requester for a copy.
  const QueuePair& qp = *context.qp;
  QueuePair* const peer = core_.env.verbs.FindQp(qp.path.destination, qp.attr.dest_qp_num);
  if (peer != nullptr && !core_.ContextOf(*peer).parked[1].trains.empty()) return true;
  s.reads_queued = 0;
  return false;
}

void Responder::SendResponses(Time now, QpContext& context) {
  const ResponderState& s = context.responder;
  SendCollectedAck(now, context);
  // The loop ends, because each round sends something or finds the local queue full.
  while (!s.responses.empty()) {
    const size_t before = s.responses.size();
    const uint32_t psn = s.responses.front().psn;
    Turn(now, context);
    if (s.responses.size() == before && s.responses.front().psn == psn) break;
  }
}

}  // namespace rdmaemu::transport
