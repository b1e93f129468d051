#include "emulator/transport/responder.h"

#include <algorithm>

#include "emulator/transport/unreliable.h"

namespace rdmaemu::transport {
namespace {

// Returns the event that a responder's error raises in its own program (IBTA 10.10.2.3, table 56,
// class C).
constexpr ibv_event_type EventOf(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kRemoteAccess:
      return IBV_EVENT_QP_ACCESS_ERR;
    case wire::NakCode::kInvalidRequest:
      return IBV_EVENT_QP_REQ_ERR;
    default:
      return IBV_EVENT_QP_FATAL;
  }
}

// Kinds of packets in wc.sl, as mlx5 reports them. Bit 3 means a UDP header, the other bits the L3
// header (openucx/ucx, uct_ud_iface_check_grh, from the programmer's manual).
constexpr uint8_t kRoceV2Ipv6 = 9;
constexpr uint8_t kRoceV2Ipv4 = 10;

constexpr uint8_t NakSyndrome(wire::NakCode code) {
  return static_cast<uint8_t>(wire::AckKind::kNak) | static_cast<uint8_t>(code);
}

ResponderResource::Kind KindOf(const wire::OpcodeInfo& info) {
  using enum ResponderResource::Kind;
  if (info.flush) return kFlush;
  return info.read ? kRead : info.atomic ? kAtomic : info.atomic_write ? kAtomicWrite : kNone;
}

Message MessageOf(const Train& train) {
  return train.info().write ? Message::kWrite : Message::kSend;
}

}  // namespace

bool FinishReceive(Core& core, Time now, QpContext& context, const Train* train,
                   ibv_wc_status status, uint64_t bytes) {
  ResponderState& s = context.responder;
  CqEntry entry{};
  entry.wc.wr_id = s.receive->wr_id;
  entry.wc.status = status;
  if (status == IBV_WC_SUCCESS) {
    const wire::OpcodeInfo& info = train->info();
    entry.wc.opcode = info.write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    entry.wc.byte_len = static_cast<uint32_t>(bytes);
    const Device& device = *context.qp->device;
    const bool by_lid = info.deth ? train->headers.by_lid : context.qp->path.by_lid;
    const bool has_grh = !device.has_lids() || !by_lid;
    if (device.profile.marks_grh && has_grh) entry.wc.wc_flags = IBV_WC_GRH;
    if (device.has_lids()) entry.wc.slid = LidOf(train->source);
    if (info.imm) {
      entry.wc.wc_flags |= IBV_WC_WITH_IMM;
      entry.wc.ex.imm_data = train->headers.immediate;
    }
    if (info.ieth) {
      entry.wc.wc_flags |= IBV_WC_WITH_INV;
      entry.wc.ex.invalidate_rkey = train->headers.invalidate_rkey;
    }
    if (info.deth) entry.wc.src_qp = train->headers.source_qpn;
    if (info.deth && device.profile.reports_packet_kind) {
      entry.wc.sl = HasIpv4Grh(*train) ? kRoceV2Ipv4 : kRoceV2Ipv6;
    }
    entry.wc.port_num = context.qp->attr.port_num;
  } else if (context.qp->device->profile.keeps_failed_opcodes) {
    entry.wc.opcode = IBV_WC_RECV;
  }
  if (s.payload_waits) entry.payload = kPayloadWaits;
  s.payload_waits = false;
  s.receive_key = s.receive->sges.size() == 1 ? s.receive->sges[0].lkey : 0;
  s.receive.reset();
  return core.CompleteReceive(now, context, entry, train != nullptr && train->headers.solicited);
}

bool TakeWriteLength(QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  if (train.begins) {
    s.write_address = train.headers.remote_address;
    s.write_rkey = train.headers.rkey;
    s.write_length = s.write_left = train.headers.dma_length;
  }
  const uint64_t bytes = train.length();
  return train.ends ? bytes == s.write_left
                    : bytes == uint64_t{train.packets} * context.mtu_bytes && bytes < s.write_left;
}

bool SendLengthFits(const QpContext& context, const Train& train) {
  const uint64_t bytes = train.length();
  const uint64_t full = uint64_t{train.packets} * context.mtu_bytes;
  if (!train.ends) return bytes == full;
  const bool is_only = train.begins && train.packets == 1;
  return bytes <= full && (is_only || bytes > full - context.mtu_bytes);
}

void Responder::Handle(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  s.peer_epoch = train.epoch;
  const int32_t ahead = PsnDiff(train.headers.psn, s.expected_psn);
  if (ahead > 0) {
    core_.counters.dropped_out_of_sequence += train.packets;
    if (s.nak_sent) return;
    s.nak_sent = true;
    context.qp->device->counters.out_of_seq_request++;
    return Nak(now, context, wire::NakCode::kPsnSequence, s.expected_psn);
  }
  if (ahead < 0) {
    const auto behind = static_cast<uint32_t>(-ahead);
    core_.counters.duplicates += std::min(behind, train.packets);
    context.qp->device->counters.duplicate_request += std::min(behind, train.packets);
    if (behind >= train.packets) return Duplicate(now, context, train);
    train.DropFront(behind);
  }
  if (!SendReadsBefore(now, context, train)) {
    core_.counters.dropped_wrong_state++;
    return;
  }
  s.nak_sent = false;
  if (!InSequence(context, train)) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, train.headers.psn,
                 IBV_WC_REM_INV_REQ_ERR);
  }
  const wire::OpcodeInfo& info = train.info();
  const unsigned rights = context.qp->attr.qp_access_flags;
  if ((info.read && (rights & IBV_ACCESS_REMOTE_READ) == 0) ||
      ((info.write || info.atomic_write) && (rights & IBV_ACCESS_REMOTE_WRITE) == 0) ||
      (info.atomic && (rights & IBV_ACCESS_REMOTE_ATOMIC) == 0) ||
      (info.flush && (static_cast<unsigned>(FlushAccess(train.headers)) & ~rights) != 0)) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, train.headers.psn,
                 IBV_WC_REM_INV_REQ_ERR);
  }
  if (info.read) return HandleRead(now, context, train);
  if (info.atomic) return HandleAtomic(now, context, train);
  if (info.atomic_write) return HandleAtomicWrite(now, context, train);
  if (info.flush) return HandleFlush(now, context, train);
  HandleData(now, context, train);
}

bool Responder::SendReadsBefore(Time now, QpContext& context, const Train& request) {
  if (context.responder.responses.empty() || request.info().read) return true;
  // While forms await programs, a response without room would wait here.
  core_.fills.FinishAll();
  SendResponses(now, context);
  return TakesRequests(context.qp->state());
}

bool Responder::InSequence(const QpContext& context, const Train& train) const {
  const ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  if (s.message == Message::kNone) return train.begins;
  return !train.begins && (info.send || info.write) && s.message == MessageOf(train);
}

void Responder::Duplicate(Time now, QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  if (info.send || info.write) {
    // C9-105. Never use the PSN of a READ: only the READ's response may acknowledge that PSN.
    return Answer(now, context,
                  {.kind = Response::Kind::kAck,
                   .syndrome = wire::kAethUnlimitedCredits,
                   .psn = PsnAdd(s.ack_psn, wire::kPsnMask),
                   .msn = s.msn});
  }
  ResponderResource* resource = Recall(context, train.headers.psn, KindOf(info));
  if (resource == nullptr) {  // class D
    core_.counters.dropped_old_request++;
    return;
  }
  if (info.atomic) {
    return Answer(now, context,
                  {.kind = Response::Kind::kAtomic,
                   .syndrome = wire::kAethUnlimitedCredits,
                   .psn = train.headers.psn,
                   .msn = s.msn,
                   .original = resource->original});
  }
  if (info.atomic_write || info.flush) {
    return Answer(now, context,
                  {.kind = Response::Kind::kEmptyRead,
                   .syndrome = wire::kAethUnlimitedCredits,
                   .psn = train.headers.psn,
                   .msn = s.msn});
  }
  // The request must repeat the same READ, or its rest.
  if (train.headers.rkey != resource->rkey || train.headers.remote_address < resource->address ||
      train.headers.dma_length > resource->length ||
      train.headers.remote_address - resource->address >
          resource->length - train.headers.dma_length) {
    core_.counters.dropped_old_request++;
    return;
  }
  QueueRead(context, train);
}

ResponderResource& Responder::Remember(QpContext& context, const Train& train, uint32_t packets) {
  ResponderState& s = context.responder;
  const size_t count = context.qp->attr.max_dest_rd_atomic;
  if (s.resources.size() != count) {
    s.resources.assign(count, {});
    s.next_resource = 0;
  }
  ResponderResource& resource = s.resources[s.next_resource];
  s.next_resource = (s.next_resource + 1) % count;
  resource = {.kind = KindOf(train.info()),
              .first_psn = train.headers.psn,
              .last_psn = PsnAdd(train.headers.psn, packets - 1),
              .address = train.headers.remote_address,
              .rkey = train.headers.rkey,
              .length = train.headers.dma_length,
              .original = 0};
  return resource;
}

ResponderResource* Responder::Recall(QpContext& context, uint32_t psn,
                                     ResponderResource::Kind kind) {
  for (ResponderResource& resource : context.responder.resources) {
    if (resource.kind == kind && PsnDiff(psn, resource.first_psn) >= 0 &&
        PsnDiff(psn, resource.last_psn) <= 0) {
      return &resource;
    }
  }
  return nullptr;
}

void Responder::HandleRead(Time now, QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  const QueuePair& qp = *context.qp;
  const uint32_t psn = train.headers.psn;
  if (qp.attr.max_dest_rd_atomic == 0 ||
      train.headers.dma_length > qp.device->profile.most_request_bytes()) {
    return Fatal(now, context, wire::NakCode::kInvalidRequest, psn, IBV_WC_REM_INV_REQ_ERR);
  }
  const auto source =
      core_.env.verbs.ResolveRemote(qp, train.headers.rkey, train.headers.remote_address,
                                    train.headers.dma_length, IBV_ACCESS_REMOTE_READ);
  if (!source) {
    const bool is_rnic = qp.device->profile.raises_rnic_events;
    return Fatal(now, context, wire::NakCode::kRemoteAccess, psn, IBV_WC_REM_ACCESS_ERR,
                 is_rnic ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
  }
  if (train.headers.dma_length > 0) core_.payloads.PlaceWaiting(context, source->range);
  const uint32_t packets = PacketsFor(train.headers.dma_length, context.mtu_bytes);
  Remember(context, train, packets);
  s.msn = PsnAdd(s.msn, 1);
  s.expected_psn = PsnAdd(psn, packets);
  QueueRead(context, train);
}

void Responder::QueueRead(QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  const ResponderResource* resource =
      Recall(context, train.headers.psn, ResponderResource::Kind::kRead);
  Response read{.kind = Response::Kind::kRead,
                .syndrome = wire::kAethUnlimitedCredits,
                .psn = train.headers.psn,
                .msn = s.msn,
                // rxe's requester accepts the rest of a READ only as Middle and Last packets.
                .begins = resource != nullptr && resource->first_psn == train.headers.psn,
                .address = train.headers.remote_address,
                .rkey = train.headers.rkey,
                .length = train.headers.dma_length};
  core_.MakeReady(context);
  // A repeated request restarts the response in progress instead of adding another one.
  for (size_t i = 0; resource != nullptr && i < s.responses.size(); ++i) {
    Response& queued = s.responses[i];
    if (queued.kind == Response::Kind::kRead && PsnDiff(queued.psn, resource->first_psn) >= 0 &&
        PsnDiff(queued.psn, resource->last_psn) <= 0) {
      queued = read;
      return;
    }
  }
  Enqueue(s, read);
}

// Returns true for a WRITE of several packets whose first packet is refused. The last packet, which
// would take a receive, is then not handled (rxe_resp.c: check_rkey of the first packet).
bool Responder::IsRefusedAtFirst(const QpContext& context, const Train& train) const {
  return train.info().write && train.begins && train.packets > 1 &&
         !core_.env.verbs.ResolveRemote(*context.qp, train.headers.rkey,
                                        train.headers.remote_address, train.headers.dma_length,
                                        IBV_ACCESS_REMOTE_WRITE);
}

void Responder::HandleData(Time now, QpContext& context, Train& train) {
  const wire::OpcodeInfo& info = train.info();
  const bool consumes = info.send ? train.begins : info.imm && train.ends;
  if (consumes && !IsRefusedAtFirst(context, train) && !context.responder.receive &&
      !TakeReceive(now, context, train)) {
    return;
  }
  if (!(info.write ? PlaceWrite(now, context, train) : PlaceSend(now, context, train))) return;
  Accept(now, context, train);
}

// Takes a receive. When there is none, sends an RNR NAK and returns false.
bool Responder::TakeReceive(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  s.receive = core_.env.verbs.TakeReceive(*context.qp);
  if (s.receive) return true;
  const uint32_t psn = train.info().write ? train.last_psn() : train.headers.psn;
  if (train.packets > 1 && train.info().write) {
    // Only the last packet of a WRITE with immediate needs a receive.
    Train before = train;
    before.KeepFront(train.packets - 1);
    before.headers.ack_request = false;
    if (!PlaceWrite(now, context, before)) return false;
    Accept(now, context, before);
  }
  core_.counters.rnr_naks++;
  context.qp->device->counters.send_rnr_err++;
  s.nak_sent = true;
  Answer(now, context,
         {.kind = Response::Kind::kAck,
          .syndrome = static_cast<uint8_t>(static_cast<uint8_t>(wire::AckKind::kRnrNak) |
                                           (context.qp->attr.min_rnr_timer & 0x1f)),
          .psn = psn,
          .msn = s.msn});
  return false;
}

// rxe reports the same status for a receive that is too small, has a bad key, is out of bounds or
// is unmapped.
ibv_wc_status ReceiveError(const QpContext& context, uint64_t bytes) {
  const Profile& profile = context.qp->device->profile;
  if (!profile.tells_receive_errors_apart) return IBV_WC_LOC_QP_OP_ERR;
  const auto& receive = context.responder.receive;
  if (!receive || bytes > receive->length) return IBV_WC_LOC_LEN_ERR;
  return profile.tells_key_errors ? IBV_WC_LOC_PROT_ERR : IBV_WC_GENERAL_ERR;
}

Placement Responder::WriteToReceive(QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  if (train.begins) s.received = 0;
  const uint64_t bytes = train.length();
  Pieces into;
  if (!s.receive || s.received + bytes > s.receive->length ||
      core_.ResolveReceive(*context.qp, *s.receive, s.received, bytes, into) != IBV_WC_SUCCESS) {
    return Placement::kDestinationGone;
  }
  const Placement placed = core_.payloads.PlaceReceived(context, train, {}, into);
  if (placed == Placement::kPlaced) s.received += bytes;
  return placed;
}

bool Responder::PlaceSend(Time now, QpContext& context, Train& train) {
  if (!SendLengthFits(context, train)) {
    Fatal(now, context, wire::NakCode::kInvalidRequest, train.headers.psn, IBV_WC_REM_INV_REQ_ERR);
    return false;
  }
  const Placement placed = WriteToReceive(context, train);
  if (placed == Placement::kDestinationGone) {
    const ibv_wc_status status = ReceiveError(context, context.responder.received + train.length());
    const bool is_invalid =
        status == IBV_WC_LOC_LEN_ERR && context.qp->device->profile.refuses_long_sends;
    Fatal(now, context,
          is_invalid ? wire::NakCode::kInvalidRequest : wire::NakCode::kRemoteOperation,
          train.headers.psn, status);
  }
  return placed == Placement::kPlaced;
}

// Writes the bytes whose length TakeWriteLength has accepted.
Placement Responder::WriteToRemote(QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const uint64_t bytes = train.length();
  if (bytes == 0) return Placement::kPlaced;
  const auto target = core_.env.verbs.ResolveRemote(*context.qp, s.write_rkey, s.write_address,
                                                    s.write_left, IBV_ACCESS_REMOTE_WRITE);
  if (!target) return Placement::kDestinationGone;
  Pieces into;
  into.Add({target->process, {target->range.address, bytes}});
  const Placement placed = core_.payloads.Place(context, train, into);
  if (placed != Placement::kPlaced) return placed;
  s.write_address += bytes;
  s.write_left -= static_cast<uint32_t>(bytes);
  return placed;
}

std::optional<ibv_event_type> Responder::EventOfRefusedWrite(const QpContext& context) const {
  if (!context.qp->device->profile.raises_rnic_events) return IBV_EVENT_QP_ACCESS_ERR;
  const ResponderState& s = context.responder;
  const auto target = core_.env.verbs.ResolveRemote(*context.qp, s.write_rkey, s.write_address,
                                                    s.write_left, IBV_ACCESS_REMOTE_WRITE);
  if (!target && target.error() == MemoryFault::kKey) return std::nullopt;
  return IBV_EVENT_QP_ACCESS_ERR;
}

bool Responder::PlaceWrite(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const bool length_fits = TakeWriteLength(context, train);
  if (!length_fits || s.write_length > context.qp->device->profile.most_request_bytes()) {
    Fatal(now, context, wire::NakCode::kInvalidRequest, train.headers.psn, IBV_WC_REM_INV_REQ_ERR);
    return false;
  }
  const Placement placed = WriteToRemote(context, train);
  if (placed == Placement::kDestinationGone) {
    Fatal(now, context, wire::NakCode::kRemoteAccess, train.headers.psn, IBV_WC_REM_ACCESS_ERR,
          EventOfRefusedWrite(context));
  }
  return placed == Placement::kPlaced;
}

void Responder::Accept(Time now, QpContext& context, const Train& train) {
  ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  QueuePair& qp = *context.qp;
  const bool invalidated =
      !(info.ieth && train.ends) || core_.env.verbs.Invalidate(qp, train.headers.invalidate_rkey);
  if (invalidated) {
    s.expected_psn = s.ack_psn = PsnAdd(train.headers.psn, train.packets);
    s.message = train.ends ? Message::kNone : MessageOf(train);
    if (train.ends) s.msn = PsnAdd(s.msn, 1);
  }
  if (train.ends && (info.send || info.imm)) {
    core_.lanes.ShowExecuted(context);
    const bool posted = FinishReceive(core_, now, context, &train,
                                      invalidated ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR,
                                      info.write ? s.write_length : s.received);
    if (!posted) return core_.FailQp(now, qp, IBV_EVENT_QP_FATAL);
  }
  if (info.send && invalidated) core_.lanes.Executed(now, context, train);
  if (train.headers.ack_request) Acknowledge(now, context, train.last_psn());
  if (!invalidated) core_.FailQp(now, qp);
}

void Responder::Nak(Time now, QpContext& context, wire::NakCode code, uint32_t psn) {
  core_.counters.naks++;
  Answer(now, context,
         {.kind = Response::Kind::kAck,
          .syndrome = NakSyndrome(code),
          .psn = psn,
          .msn = context.responder.msn});
}

void Responder::Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn,
                      ibv_wc_status status) {
  Fatal(now, context, code, psn, status, EventOf(code));
}

void Responder::Fatal(Time now, QpContext& context, wire::NakCode code, uint32_t psn,
                      ibv_wc_status status, std::optional<ibv_event_type> event) {
  const bool completes = context.responder.receive.has_value();
  if (completes) (void)FinishReceive(core_, now, context, nullptr, status, 0);
  Nak(now, context, code, psn);
  // Send the responses before the NAK before the QP discards them.
  SendResponses(now, context);
  context.responder.responses.Clear();
  context.refused_epoch = context.epoch;
  if (completes) return core_.FailQpAfter(now, *context.qp, status);
  if (!event) return core_.FailQp(now, *context.qp);
  core_.FailQp(now, *context.qp, *event);
}

void Responder::Flush(Time now, QpContext& context) {
  ResponderState& s = context.responder;
  QueuePair& qp = *context.qp;
  s.responses.Clear();
  if (s.receive) (void)FinishReceive(core_, now, context, nullptr, IBV_WC_WR_FLUSH_ERR, 0);
  if (qp.srq != nullptr) return;
  // At most the ring's size, because the program may post during this loop.
  for (uint32_t left = qp.recv_ring ? qp.recv_ring.usable() : 0; left > 0; left--) {
    s.receive = core_.env.verbs.TakeReceive(qp);
    if (!s.receive) break;
    (void)FinishReceive(core_, now, context, nullptr, IBV_WC_WR_FLUSH_ERR, 0);
  }
}

}  // namespace rdmaemu::transport
