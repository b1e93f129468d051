#include "emulator/transport/unreliable.h"

#include <algorithm>

#include "emulator/transport/requester.h"
#include "emulator/transport/responder.h"
#include "emulator/wire/byte_order.h"

namespace rdmaemu::transport {
namespace {

constexpr size_t kUdpHeaderBytes = 8;
constexpr size_t kIpv4HeaderBytes = 20;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint32_t kQkeyIsOwn = 0x80000000;  // IBTA 10.2.5: the high bit selects the QP's own Q_Key

bool TakesOwnQkey(const QueuePair& qp, uint32_t qkey) {
  return qp.device->profile.ud_qkey_may_be_own && (qkey & kQkeyIsOwn) != 0;
}

void FillIpv4(const Train& train, size_t udp_bytes, std::byte* out) {
  using wire::StoreBig;
  StoreBig<1>(out, 0x45);
  StoreBig<1>(out + 1, train.traffic_class);
  StoreBig<2>(out + 2, kIpv4HeaderBytes + udp_bytes);
  StoreBig<2>(out + 6, 0x4000);  // do not fragment; the ID is 0
  StoreBig<1>(out + 8, train.hop_limit);
  StoreBig<1>(out + 9, kProtocolUdp);
  StoreBig<4>(out + 12, train.source.ToIpv4());
  StoreBig<4>(out + 16, train.destination.ToIpv4());
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4HeaderBytes; i += 2) {
    sum += static_cast<uint32_t>(wire::LoadBig<2>(out + i));
  }
  sum = (sum & 0xffff) + (sum >> 16);
  sum += sum >> 16;
  StoreBig<2>(out + 10, ~sum & 0xffff);
}

void FillIpv6(const Train& train, const NetAddress& source, const NetAddress& destination,
              size_t udp_bytes, std::byte* out) {
  using wire::StoreBig;
  StoreBig<4>(out, 6u << 28 | uint32_t{train.traffic_class} << 20);
  StoreBig<2>(out + 4, udp_bytes);
  StoreBig<1>(out + 6, kProtocolUdp);
  StoreBig<1>(out + 7, train.hop_limit);
  std::memcpy(out + 8, source.bytes.data(), 16);
  std::memcpy(out + 24, destination.bytes.data(), 16);
}

}  // namespace

bool HasIpv4Grh(const Train& train) {
  return train.destination.IsIpv4() && !(train.headers.by_link_local && train.source.IsIpv4());
}

std::array<std::byte, kGrhBytes> MakeGrh(const Train& train) {
  std::array<std::byte, kGrhBytes> grh{};
  const size_t padded = (train.length() + 3) & ~uint64_t{3};
  const size_t udp_bytes = kUdpHeaderBytes + train.info().header_bytes + padded + wire::kIcrcBytes;
  if (train.headers.by_link_local && train.source.IsIpv4() && train.destination.IsIpv4()) {
    FillIpv6(train, LinkLocalOf(train.source), LinkLocalOf(train.destination), udp_bytes,
             grh.data());
  } else if (HasIpv4Grh(train)) {
    FillIpv4(train, udp_bytes, grh.data() + kGrhBytes - kIpv4HeaderBytes);
  } else {
    FillIpv6(train, train.source, train.destination, udp_bytes, grh.data());
  }
  return grh;
}

bool Unreliable::Turn(Time now, QpContext& context) {
  RequesterState& s = context.requester;
  const bool is_ud = context.qp->type == IBV_QPT_UD;
  uint32_t budget = kTrainsPerTurn;
  while (IsSending(*context.qp)) {
    SendWqe* request = NextRequest(context);
    if (request == nullptr) return false;
    if (budget-- == 0) return true;
    if (request->status == IBV_WC_SUCCESS) {
      if (request->is_local()) {
        request->status = ExecuteLocal(core_, *context.qp, *request);
        request->done = true;
      } else if (core_.FailsSends(*context.qp)) {
        request->status = IBV_WC_LOC_QP_OP_ERR;
      } else {
        request->status = is_ud ? SendUd(now, context, *request) : SendUc(now, context, *request);
      }
    }
    // The receiver may be the sending QP itself, and may have moved it to ERR.
    if (!IsSending(*context.qp)) return false;
    if (request->status != IBV_WC_SUCCESS) request->done = true;
    if (!request->done) continue;
    s.cursor++;
    completer_.CompleteDone(now, context);
  }
  return false;
}

ibv_wc_status Unreliable::Hand(Time now, Device& from, bool local) {
  if (!local) {
    return core_.Transmit(now, from, train_, false, 0) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
  }
  if (!core_.Leaves(from, train_)) return IBV_WC_SUCCESS;
  const auto deliver = [&](Train& train) -> Status {
    core_.NoteLocal(now, train);
    train.source_failed = false;
    receiver_.Deliver(now, train);
    return train.source_failed ? rdmaemu::Fail(EFAULT) : Status();
  };
  const Status sent =
      core_.doors.packets ? core_.PassDoors(now, train_, true, deliver) : deliver(train_);
  return sent ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

// Sends one train of the request. The last train makes the request done.
ibv_wc_status Unreliable::SendUc(Time now, QpContext& context, SendWqe& request) {
  RequesterState& s = context.requester;
  const QueuePair& qp = *context.qp;
  AssignPsns(context, request);
  const uint32_t most = context.peer_is_local
                            ? static_cast<uint32_t>(kMaxTrainBytes / context.mtu_bytes)
                            : kWirePacketsPerTurn;
  const uint32_t packets = std::min(request.packets - request.sent, most);
  train_.headers = {};
  train_.headers.transport = wire::TransportClass::kUc;
  train_.headers.operation = DataOperation(request.opcode());
  train_.headers.destination_qpn = qp.attr.dest_qp_num;
  train_.headers.pkey = qp.device->PkeyAt(qp.attr.pkey_index);
  train_.source = qp.path.source;
  train_.destination = qp.path.destination;
  train_.traffic_class = qp.path.traffic_class;
  train_.hop_limit = qp.path.hop_limit;
  train_.sender_qpn = qp.qpn;
  const ibv_wc_status loaded = LoadData(core_, context, request, packets, train_);
  if (loaded != IBV_WC_SUCCESS) return loaded;
  request.sent += packets;
  request.done = request.sent == request.packets;
  s.next_psn = PsnAdd(train_.headers.psn, packets);
  return Hand(now, *context.qp->device, context.peer_is_local);
}

ibv_wc_status Unreliable::SendUd(Time now, QpContext& context, SendWqe& request) {
  RequesterState& s = context.requester;
  const QueuePair& qp = *context.qp;
  request.done = true;
  const AddressHandle* ah = core_.env.verbs.FindAh(qp, request.wr.wr.ud.ah_num);
  if (ah == nullptr) return IBV_WC_LOC_QP_OP_ERR;
  // C10-93.1.1: a message above the port's MTU is dropped without an error.
  if (request.length > MtuBytes(qp.device->active_mtu)) {
    if (qp.device->profile.fails_long_datagrams) return IBV_WC_LOC_LEN_ERR;
    s.next_psn = PsnAdd(s.next_psn, 1);
    core_.counters.dropped_above_mtu++;
    return IBV_WC_SUCCESS;
  }
  train_.headers = {};
  train_.headers.transport = wire::TransportClass::kUd;
  train_.headers.operation = DataOperation(request.opcode());
  train_.headers.destination_qpn = request.wr.wr.ud.remote_qpn & wire::kPsnMask;
  train_.headers.source_qpn = qp.qpn;
  train_.headers.pkey = qp.device->PkeyAt(qp.attr.pkey_index);
  const uint32_t qkey = request.wr.wr.ud.remote_qkey;
  train_.headers.qkey = TakesOwnQkey(qp, qkey) ? qp.attr.qkey : qkey;
  train_.headers.by_link_local = ah->path.by_link_local;
  train_.headers.by_lid = ah->path.by_lid;
  train_.source = ah->path.source;
  train_.destination = ah->path.destination;
  train_.traffic_class = ah->path.traffic_class;
  train_.hop_limit = ah->path.hop_limit;
  train_.sender_qpn = qp.qpn;
  request.packets = 1;
  request.first_psn = request.last_psn = s.next_psn;
  request.started = true;
  const ibv_wc_status loaded = LoadData(core_, context, request, 1, train_);
  if (loaded != IBV_WC_SUCCESS) return loaded;
  s.next_psn = PsnAdd(s.next_psn, 1);
  if (train_.destination.IsMulticast()) return SendMulticast(now, context);
  return Hand(now, *context.qp->device, core_.env.verbs.IsLocal(train_.destination));
}

// Sends to the wire and to every receiver on this host. The receivers include the sender if it has
// joined the group.
ibv_wc_status Unreliable::SendMulticast(Time now, QpContext& context) {
  train_.headers.destination_qpn = wire::kMulticastQpn;
  const ibv_wc_status sent = Hand(now, *context.qp->device, false);
  if (sent != IBV_WC_SUCCESS || !IsSending(*context.qp)) return sent;
  return Hand(now, *context.qp->device, true);
}

void Unreliable::FailReceive(Time now, QpContext& context, ibv_wc_status status) {
  (void)FinishReceive(core_, now, context, nullptr, status, 0);
  core_.FailQp(now, *context.qp);
}

void Unreliable::HandleUd(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  if (!s.receive) s.receive = core_.env.verbs.TakeReceive(*context.qp);
  if (!s.receive) {
    core_.counters.dropped_no_receive++;
    return;
  }
  const uint64_t bytes = kGrhBytes + train.length();
  if (bytes > s.receive->length && context.qp->device->profile.drops_long_datagrams) {
    core_.counters.dropped_wrong_length++;
    // rxe_receiver of Linux 6.12, RESPST_ERR_LENGTH: the next datagram gets a QP's own receive.
    if (context.qp->srq != nullptr) {
      (void)FinishReceive(core_, now, context, nullptr, IBV_WC_REM_INV_REQ_ERR, 0);
    }
    return;
  }
  Pieces into;
  if (bytes > s.receive->length ||
      core_.ResolveReceive(*context.qp, *s.receive, 0, bytes, into) != IBV_WC_SUCCESS) {
    return FailReceive(now, context, ReceiveError(context, bytes));
  }
  const Placement placed = core_.payloads.PlaceReceived(context, train, MakeGrh(train), into);
  if (placed == Placement::kSourceGone || placed == Placement::kProcessEnded) {
    return;  // the next packet gets the receive
  }
  if (placed == Placement::kDestinationGone) {
    return FailReceive(now, context, ReceiveError(context, bytes));
  }
  s.expected_psn = PsnAdd(train.headers.psn, 1);  // only for ibv_query_qp, as in rxe's execute
  if (!FinishReceive(core_, now, context, &train, IBV_WC_SUCCESS, bytes)) {
    core_.FailQp(now, *context.qp, IBV_EVENT_QP_FATAL);
  }
}

void Unreliable::HandleUc(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const wire::OpcodeInfo& info = train.info();
  const Message message = info.write ? Message::kWrite : Message::kSend;
  if (train.begins) {
    s.drop_message = false;  // a new message begins in any case
  } else if (s.drop_message || train.headers.psn != s.expected_psn || s.message != message) {
    s.drop_message = true;
    s.message = Message::kNone;
    core_.counters.dropped_out_of_sequence += train.packets;
    return;
  }
  s.message = Message::kNone;
  s.drop_message = true;  // cleared below on success
  const bool placed =
      info.write ? PlaceUcWrite(now, context, train) : PlaceUcSend(now, context, train);
  if (!placed) return;
  s.drop_message = false;
  s.expected_psn = PsnAdd(train.headers.psn, train.packets);
  if (!train.ends) {
    s.message = message;
    return;
  }
  if (!info.send && !info.imm) return;
  if (!FinishReceive(core_, now, context, &train, IBV_WC_SUCCESS,
                     info.write ? s.write_length : s.received)) {
    core_.FailQp(now, *context.qp, IBV_EVENT_QP_FATAL);
  }
}

bool Unreliable::PlaceUcSend(Time now, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  EngineCounters& counters = core_.counters;
  if (!SendLengthFits(context, train)) {
    counters.dropped_wrong_length += train.packets;
    return false;
  }
  if (train.begins) {
    s.received = 0;
    if (!s.receive) s.receive = core_.env.verbs.TakeReceive(*context.qp);
  }
  if (!s.receive) {
    counters.dropped_no_receive += train.packets;
    return false;
  }
  const uint64_t bytes = train.length();
  Pieces into;
  if (s.received + bytes > s.receive->length ||
      core_.ResolveReceive(*context.qp, *s.receive, s.received, bytes, into) != IBV_WC_SUCCESS) {
    FailReceive(now, context, ReceiveError(context, s.received + bytes));
    return false;
  }
  switch (core_.payloads.PlaceReceived(context, train, {}, into)) {
    case Placement::kPlaced:
      s.received += bytes;
      return true;
    case Placement::kDestinationGone:
      FailReceive(now, context, ReceiveError(context, s.received + bytes));
      return false;
    case Placement::kSourceGone:
    case Placement::kProcessEnded:
      return false;
  }
  return false;
}

bool Unreliable::PlaceUcWrite(Time, QpContext& context, Train& train) {
  ResponderState& s = context.responder;
  const QueuePair& qp = *context.qp;
  EngineCounters& counters = core_.counters;
  if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
    counters.dropped_no_access += train.packets;
    return false;
  }
  if (!TakeWriteLength(context, train)) {
    counters.dropped_wrong_length += train.packets;
    return false;
  }
  const uint64_t bytes = train.length();
  if (train.info().imm && train.ends && !s.receive) {
    s.receive = core_.env.verbs.TakeReceive(*context.qp);
    if (!s.receive) {
      counters.dropped_no_receive += train.packets;
      return false;
    }
  }
  if (bytes == 0) return true;
  const auto target = core_.env.verbs.ResolveRemote(qp, s.write_rkey, s.write_address, s.write_left,
                                                    IBV_ACCESS_REMOTE_WRITE);
  if (!target) {
    counters.dropped_no_access += train.packets;
    return false;
  }
  Pieces into;
  into.Add({target->process, {target->range.address, bytes}});
  if (core_.payloads.Place(context, train, into) != Placement::kPlaced) {
    if (!train.source_failed) counters.dropped_no_memory += train.packets;
    return false;
  }
  s.write_address += bytes;
  s.write_left -= static_cast<uint32_t>(bytes);
  return true;
}

}  // namespace rdmaemu::transport
