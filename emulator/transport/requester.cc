#include "emulator/transport/requester.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdmaemu::transport {
namespace {

// The most PSNs of one message. PSN comparisons must not wrap.
constexpr uint64_t kMaxMessagePackets = 1u << 22;

bool IsFenced(const QpContext& context, const SendWqe& request) {
  const RequesterState& s = context.requester;
  // In rxe, LOCAL_INV waits for all requests before it.
  if (request.wr.opcode == IBV_WR_LOCAL_INV) return &s.requests[0] != &request;
  return (request.wr.send_flags & IBV_SEND_FENCE) != 0 && !s.reads.empty();
}

}  // namespace

SendWqe* NextRequest(QpContext& context) {
  RequesterState& s = context.requester;
  const QueuePair& qp = *context.qp;
  const bool draining = qp.state() == IBV_QPS_SQD;
  if (s.cursor < s.requests.size()) {
    SendWqe& request = s.requests[s.cursor];
    return draining && !request.started && !request.done ? nullptr : &request;
  }
  if (draining || s.requests.size() >= qp.send_ring.usable() ||
      s.next_index == qp.send_ring.Producer()) {
    return nullptr;
  }
  const uint64_t most = std::min<uint64_t>(qp.device->profile.most_message_bytes(),
                                           kMaxMessagePackets * context.mtu_bytes);
  SendWqe& request = s.requests.PushSlot();
  CopySendWqe(qp, s.next_index, static_cast<uint32_t>(most), request);
  s.next_index = qp.send_ring.Next(s.next_index);
  if (s.next_index != qp.send_ring.Producer()) qp.send_ring.PrepareToRead(s.next_index);
  return &request;
}

void AssignPsns(QpContext& context, SendWqe& request) {
  if (request.started) return;
  request.started = true;
  const bool is_one = request.is_atomic() || request.is_atomic_write() || request.is_flush();
  request.packets = is_one ? 1 : PacketsFor(request.length, context.mtu_bytes);
  request.first_psn = context.requester.next_psn;
  request.last_psn = PsnAdd(request.first_psn, request.packets - 1);
}

ibv_wc_status ExecuteLocal(Core& core, QueuePair& qp, const SendWqe& request) {
  if (request.wr.opcode == IBV_WR_LOCAL_INV) {
    return core.env.verbs.Invalidate(qp, request.wr.ex.invalidate_rkey) ? IBV_WC_SUCCESS
                                                                        : IBV_WC_LOC_QP_OP_ERR;
  }
  return core.env.verbs.BindWindow(qp, request.wr) ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

wire::Operation DataOperation(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND_WITH_IMM:
      return wire::Operation::kSendOnlyImm;
    case IBV_WR_SEND_WITH_INV:
      return wire::Operation::kSendOnlyInvalidate;
    case IBV_WR_RDMA_WRITE:
      return wire::Operation::kWriteOnly;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return wire::Operation::kWriteOnlyImm;
    default:
      return wire::Operation::kSendOnly;
  }
}

bool HasValidCopy(Core& core, const QpContext& context, const SendWqe& request) {
  if (request.sges.size() != 1 || request.data.empty() || request.is_inline) return false;
  const rxe_sge& sge = request.sges[0];
  const auto ref = core.env.verbs.ResolveLocal(*context.qp->pd, sge, 0);
  return ref && ref->range.address == sge.addr;
}

ibv_wc_status LoadData(Core& core, QpContext& context, const SendWqe& request, uint32_t packets,
                       Train& train) {
  const uint64_t offset = uint64_t{request.sent} * context.mtu_bytes;
  const uint64_t bytes =
      std::min<uint64_t>(uint64_t{packets} * context.mtu_bytes, request.length - offset);
  train.begins = request.sent == 0;
  train.ends = request.sent + packets == request.packets;
  train.packets = packets;
  train.mtu_bytes = context.mtu_bytes;
  train.headers.psn = PsnAdd(request.first_psn, request.sent);
  train.headers.solicited = train.ends && (request.wr.send_flags & IBV_SEND_SOLICITED) != 0 &&
                            request.wr.opcode != IBV_WR_RDMA_WRITE;
  if (request.is_write()) {
    train.headers.remote_address = request.wr.wr.rdma.remote_addr + offset;
    train.headers.rkey = request.wr.wr.rdma.rkey;
    train.headers.dma_length = request.length;
  }
  if (request.wr.opcode == IBV_WR_SEND_WITH_INV) {
    train.headers.invalidate_rkey = request.wr.ex.invalidate_rkey;
  } else {
    train.headers.immediate = request.wr.ex.imm_data;
  }
  train.is_bytes = request.is_inline;
  train.bytes = {};
  train.pieces.Clear();
  if (request.is_inline) {
    train.bytes = request.data.subspan(offset, bytes);
    return IBV_WC_SUCCESS;
  }
  if (bytes == request.data.size() && !core.doors.memory && HasValidCopy(core, context, request)) {
    train.is_bytes = true;
    train.bytes = request.data;
    return IBV_WC_SUCCESS;
  }
  const ibv_wc_status resolved =
      core.ResolveSges(*context.qp, request.sges, offset, bytes, 0, train.pieces);
  if (resolved == IBV_WC_SUCCESS && bytes > 0 && bytes <= request.data.size() &&
      train.pieces.IsAt(request.sges) && !core.doors.memory) {
    train.is_bytes = true;
    train.bytes = request.data.subspan(offset, bytes);
  }
  return resolved;
}

void Requester::SendNoted(Time now) {
  for (const DirectSends::Noted& noted : direct_.TakeNoted()) {
    QpContext* const context = core_.Find(noted.qp);
    if (context == nullptr) continue;
    if (context->epoch != noted.epoch || Turn(now, *context, &noted.end)) {
      core_.MakeReady(*context);
    }
    completer_.CheckDrained(*context);
  }
}

bool Requester::Turn(Time now, QpContext& context, const uint32_t* end) {
  RequesterState& s = context.requester;
  uint32_t budget = context.peer_is_local ? kTrainsPerTurn : kWirePacketsPerTurn;
  direct_.BeginTurn(context);
  bool is_first = true;
  while (IsSending(*context.qp) && !s.waiting_rnr) {
    if (end != nullptr && s.cursor == s.requests.size() && s.next_index == *end) return true;
    SendWqe* request = NextRequest(context);
    if (request == nullptr) return false;
    // A program executes no request while one is posted. Only a new permit can change that.
    if (std::exchange(is_first, false) || context.permit.is_given) core_.permits.Interrupt(context);
    core_.lanes.Interrupt(now, context);
    if (request->done) {
      if (request->status != IBV_WC_SUCCESS) return false;
      s.cursor++;
      continue;
    }
    if (budget == 0) return true;
    if (request->status != IBV_WC_SUCCESS) {
      request->done = true;
      completer_.CompleteDone(now, context);
      return false;
    }
    if (IsFenced(context, *request)) return false;
    if (request->is_local()) {
      budget--;
      if (!RunLocal(now, context, *request)) return false;
      continue;
    }
    if (direct_.MayExecute(context, *request)) {
      if (end == nullptr) {
        direct_.Note(context);
        return false;
      }
      if (direct_.Execute(now, context, *request)) {
        budget--;
        continue;
      }
    }
    if (core_.FailsSends(*context.qp)) {
      request->status = IBV_WC_LOC_QP_OP_ERR;
      continue;
    }
    switch (SendSome(now, context, *request, budget)) {
      case Step::kSent:
        break;
      case Step::kBusy:
        return true;
      case Step::kFailed:
        request->done = true;
        completer_.CompleteDone(now, context);
        return false;
      case Step::kBlocked:
        return false;
    }
  }
  return false;
}

bool Requester::RunLocal(Time now, QpContext& context, SendWqe& request) {
  request.status = ExecuteLocal(core_, *context.qp, request);
  request.done = true;
  const bool ok = request.status == IBV_WC_SUCCESS;
  if (ok) context.requester.cursor++;
  completer_.CompleteDone(now, context);
  return ok;
}

void Requester::Address(QpContext& context, wire::Operation operation) {
  AddressRc(context, operation, *train_);
  train_->origin = context.qp->handle;
  train_->epoch = context.epoch;
}

Requester::Step Requester::SendSome(Time now, QpContext& context, SendWqe& request,
                                    uint32_t& budget) {
  RequesterState& s = context.requester;
  const uint32_t window = context.peer_is_local ? kLocalWindowPackets : s.window.packets();
  const int32_t in_flight = PsnDiff(s.next_psn, s.unacked_psn);
  if (s.probing && in_flight > 0) return Step::kBlocked;
  if (in_flight >= static_cast<int32_t>(window)) {
    s.window.NoteFull();
    return Step::kBlocked;
  }
  AssignPsns(context, request);
  const uint32_t room = window - static_cast<uint32_t>(in_flight);
  if (!request.needs_response()) return SendData(now, context, request, room, budget);
  // max_rd_atomic does not limit FLUSHes in rxe (check_init_depth).
  if (!request.is_flush() && s.reads.size() >= context.qp->attr.max_rd_atomic) {
    return Step::kBlocked;
  }
  const Step step = request.is_flush()          ? SendFlush(now, context, request)
                    : request.is_read()         ? SendRead(now, context, request, room)
                    : request.is_atomic_write() ? SendAtomicWrite(now, context, request)
                                                : SendAtomic(now, context, request);
  if (step == Step::kSent) budget--;
  return step;
}

Requester::Step Requester::SendData(Time now, QpContext& context, SendWqe& request, uint32_t room,
                                    uint32_t& budget) {
  RequesterState& s = context.requester;
  const uint32_t most =
      context.peer_is_local
          ? std::max(1u, static_cast<uint32_t>(kMaxTrainBytes / context.mtu_bytes))
          : budget;
  const uint32_t packets = std::min({request.packets - request.sent, room, most});
  Address(context, DataOperation(request.opcode()));
  const ibv_wc_status loaded = LoadData(core_, context, request, packets, *train_);
  if (loaded != IBV_WC_SUCCESS) {
    request.status = loaded;
    return Step::kFailed;
  }
  const uint32_t without_ack = s.packets_without_ack + packets;
  train_->headers.ack_request = train_->ends || packets == room ||
                                without_ack >= context.qp->device->profile.rc.ack_every_packets;
  const bool asks_for_ack = train_->headers.ack_request;
  const Step step = Dispatch(now, context, request, packets, kMaxLocalRequests);
  if (step != Step::kSent) return step;
  s.packets_without_ack = asks_for_ack ? 0 : without_ack;
  budget -= context.peer_is_local ? 1 : packets;
  return step;
}

Requester::Step Requester::SendRead(Time now, QpContext& context, SendWqe& request, uint32_t room) {
  // Sends a long READ as several requests of half a window each, so that its responses do not
  // overrun this side's receive buffers. A retransmission uses the same boundaries, because the
  // responder remembers each request by its PSNs.
  const TransportProfile& profile = context.qp->device->profile.rc;
  const uint32_t chunk = context.peer_is_local ? kLocalWindowPackets / 2
                                               : std::max(1u, profile.max_unacked_packets / 2);
  const uint32_t packets = std::min(request.packets - request.sent, chunk - request.sent % chunk);
  // Send one request in any case. A small window would otherwise block all requests forever.
  if (packets > room && context.requester.next_psn != context.requester.unacked_psn) {
    context.requester.window.NoteFull();
    return Step::kBlocked;
  }
  Address(context, wire::Operation::kReadRequest);
  const uint64_t offset = uint64_t{request.sent} * context.mtu_bytes;
  train_->headers.psn = PsnAdd(request.first_psn, request.sent);
  train_->headers.ack_request = true;
  train_->headers.remote_address = request.wr.wr.rdma.remote_addr + offset;
  train_->headers.rkey = request.wr.wr.rdma.rkey;
  train_->headers.dma_length = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{packets} * context.mtu_bytes, request.length - offset));
  const Step step = Dispatch(now, context, request, packets, kMaxLocalRequests);
  if (step == Step::kSent)
    context.requester.reads.Push(PsnAdd(context.requester.next_psn, wire::kPsnMask));
  return step;
}

Requester::Step Requester::SendAtomic(Time now, QpContext& context, SendWqe& request) {
  const bool swap = request.wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  Address(context, swap ? wire::Operation::kCompareSwap : wire::Operation::kFetchAdd);
  train_->headers.psn = request.first_psn;
  train_->headers.ack_request = true;
  train_->headers.remote_address = request.wr.wr.atomic.remote_addr;
  train_->headers.rkey = request.wr.wr.atomic.rkey;
  train_->headers.swap_add = swap ? request.wr.wr.atomic.swap : request.wr.wr.atomic.compare_add;
  train_->headers.compare = swap ? request.wr.wr.atomic.compare_add : 0;
  const Step step = Dispatch(now, context, request, 1, kMaxLocalRequests);
  if (step == Step::kSent) context.requester.reads.Push(request.first_psn);
  return step;
}

Requester::Step Requester::SendFlush(Time now, QpContext& context, SendWqe& request) {
  FlushRequest flush;
  static_assert(sizeof flush <= sizeof request.wr.wr);
  std::memcpy(&flush, &request.wr.wr, sizeof flush);
  Address(context, wire::Operation::kFlush);
  train_->headers.psn = request.first_psn;
  train_->headers.ack_request = true;
  train_->headers.remote_address = flush.remote_address;
  train_->headers.rkey = flush.rkey;
  train_->headers.dma_length = request.length;
  train_->headers.placement = flush.placement & 0x0f;
  train_->headers.selectivity = flush.selectivity & 0x03;
  return Dispatch(now, context, request, 1, kMaxLocalRequests);
}

Requester::Step Requester::SendAtomicWrite(Time now, QpContext& context, SendWqe& request) {
  Address(context, wire::Operation::kAtomicWrite);
  train_->headers.psn = request.first_psn;
  train_->headers.ack_request = true;
  train_->headers.remote_address = request.wr.wr.rdma.remote_addr;
  train_->headers.rkey = request.wr.wr.rdma.rkey;
  train_->headers.dma_length = request.length;
  train_->is_bytes = true;
  train_->bytes = request.data;
  const Step step = Dispatch(now, context, request, 1, kMaxLocalRequests);
  if (step == Step::kSent) context.requester.reads.Push(request.first_psn);
  return step;
}

Requester::Step Requester::Dispatch(Time now, QpContext& context, SendWqe& request,
                                    uint32_t packets, size_t limit) {
  RequesterState& s = context.requester;
  const uint32_t psn = train_->headers.psn;
  const Status sent =
      core_.Transmit(now, *context.qp->device, train_, context.peer_is_local, limit);
  if (!sent) {
    if (sent.error().code == EAGAIN) return Step::kBusy;
    request.status = IBV_WC_LOC_PROT_ERR;
    return Step::kFailed;
  }
  request.sent += packets;
  s.next_psn = PsnAdd(psn, packets);
  if (PsnDiff(s.next_psn, s.highest_psn) > 0) s.highest_psn = s.next_psn;
  if (request.sent == request.packets) s.cursor++;
  if (!context.deadline) core_.SetDeadline(context, AckDeadline(now, *context.qp));
  return Step::kSent;
}

}  // namespace rdmaemu::transport
