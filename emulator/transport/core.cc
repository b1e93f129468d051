#include "emulator/transport/core.h"

#include <algorithm>
#include <utility>

namespace rdmaemu::transport {

QpContext& Core::ContextOf(QueuePair& qp) {
  if (qp.transport == nullptr) {
    auto context = std::make_unique<QpContext>(qp);
    BeginLife(*context);
    contexts_[qp.handle] = context.get();
    qp.transport = std::move(context);
  }
  return static_cast<QpContext&>(*qp.transport);
}

QpContext* Core::Find(Handle qp) {
  const auto it = contexts_.find(qp);
  return it == contexts_.end() ? nullptr : it->second;
}

void Core::Forget(QueuePair& qp) {
  if (qp.transport == nullptr) return;
  auto& context = static_cast<QpContext&>(*qp.transport);
  ForgetPermits(context);
  round.Remove(context);
  timers_.Cancel(qp.handle);
  contexts_.erase(qp.handle);
  qp.transport.reset();
}

void Core::SetDeadline(QpContext& context, std::optional<Time> deadline) {
  context.deadline = deadline;
  if (!deadline || (context.armed && *context.armed <= *deadline)) return;
  context.armed = deadline;
  timers_.Arm(context.qp->handle, *deadline);
}

void Core::DropStaleDeadlines() {
  while (const auto first = timers_.First()) {
    QpContext* const context = Find(first->second);
    const bool is_deadline =
        context != nullptr && context->deadline && *context->deadline <= first->first;
    if (is_deadline) return;
    timers_.Cancel(first->second);
    if (context == nullptr) continue;
    context->armed.reset();
    SetDeadline(*context, context->deadline);
  }
}

bool Core::AwaitsReceive() const {
  return std::ranges::any_of(contexts_,
                             [](const auto& each) { return each.second->requester.waiting_rnr; });
}

QpContext* Core::PopExpired(Time now) {
  while (const std::optional<Handle> handle = timers_.PopExpired(now)) {
    QpContext* context = Find(*handle);
    if (context == nullptr) continue;
    context->armed.reset();
    if (!context->deadline) continue;
    if (*context->deadline <= now) {
      context->deadline.reset();
      return context;
    }
    SetDeadline(*context, context->deadline);
  }
  return nullptr;
}

ibv_wc_status Core::ResolveSges(const QueuePair& qp, std::span<const rxe_sge> sges, uint64_t offset,
                                uint64_t length, int access, Pieces& out) {
  return ResolveIn(*qp.pd, sges, offset, length, access, out);
}

ibv_wc_status Core::ResolveReceive(const QueuePair& qp, const RecvWqe& receive, uint64_t offset,
                                   uint64_t length, Pieces& out) {
  const bool by_srq = qp.srq != nullptr && qp.device->profile.checks_srq_pd;
  return ResolveIn(by_srq ? *qp.srq->pd : *qp.pd, {receive.sges.data(), receive.sges.size()},
                   offset, length, IBV_ACCESS_LOCAL_WRITE, out);
}

ibv_wc_status Core::ResolveIn(const ProtectionDomain& pd, std::span<const rxe_sge> sges,
                              uint64_t offset, uint64_t length, int access, Pieces& out) {
  out.Clear();
  for (const rxe_sge& sge : sges) {
    if (length == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    // Only the used bytes must be in bounds. A receive may name more bytes than its region has
    // (measured).
    rxe_sge used = sge;
    used.addr += offset;
    used.length = static_cast<uint32_t>(std::min<uint64_t>(sge.length - offset, length));
    const auto ref = env.verbs.ResolveLocal(pd, used, access);
    if (!ref) {
      const Profile& profile = pd.context->device->profile;
      const bool is_protection = profile.tells_key_errors || (ref.error() == MemoryFault::kRange &&
                                                              profile.tells_gather_errors_apart);
      return is_protection ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR;
    }
    out.Add(*ref);
    offset = 0;
    length -= used.length;
  }
  return length == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR;
}

bool Core::Leaves(Device& from, const Train& train) {
  if (!env.verbs.Carries(train.source)) {
    counters.dropped_no_link += train.packets;
    from.counters.send_err += train.packets;
    return false;
  }
  from.counters.sent_pkts += train.packets;
  return true;
}

Status Core::Transmit(Time now, Device& from, const Train& train, bool local, size_t limit) {
  if (local && !LocalRoom(limit)) return Fail(EAGAIN);
  if (!Leaves(from, train)) return {};  // lost, as on a broken wire
  const auto cut_to_wire = [&](const Train& part) -> Status {
    const Status cut = SendToWire(now, part);
    // Leaves has counted the packets, which are not sent yet.
    if (!cut && cut.error().code == EAGAIN) from.counters.sent_pkts -= part.packets;
    // The sender's process has ended, so the packets are lost (Placement::kProcessEnded).
    return !cut && cut.error().code == ESRCH ? Status() : cut;
  };
  if (doors.packets) {
    return PassDoors(now, train, local, [&](const Train& part) -> Status {
      if (!local) return cut_to_wire(part);
      QueueLocal(now, part);
      return {};
    });
  }
  if (!local) return cut_to_wire(train);
  QueueLocal(now, train);
  return {};
}

Status Core::Transmit(Time now, Device& from, std::unique_ptr<Train>& train, bool local,
                      size_t limit) {
  if (!local || doors.packets) return Transmit(now, from, *train, local, limit);
  if (!LocalRoom(limit)) return Fail(EAGAIN);
  if (!Leaves(from, *train)) return {};
  NoteLocal(now, *train);
  train->regions_ended = regions_ended_;
  local_.Push(std::exchange(train, SpareTrain()));
  return {};
}

std::unique_ptr<Train> Core::SpareTrain() {
  if (spare_.empty()) return std::make_unique<Train>();
  std::unique_ptr<Train> spare = std::move(spare_.back());
  spare_.pop_back();
  return spare;
}

void Core::QueueLocal(Time now, const Train& train) {
  NoteLocal(now, train);
  std::unique_ptr<Train> queued = SpareTrain();
  *queued = train;
  queued->regions_ended = regions_ended_;
  local_.Push(std::move(queued));
}

void Core::RegionEnded(uint32_t lkey, bool any_on_way) {
  if (!any_on_way && !HasLocal()) {
    ended_regions_.clear();
    return;
  }
  if (ended_regions_.size() == kMaxEndedRegions) ended_regions_.pop_front();
  ended_regions_.push_back(lkey);
  regions_ended_++;
}

bool Core::HasEndedSince(const Train& train, uint32_t lkey) const {
  const uint64_t since = regions_ended_ - train.regions_ended;
  if (since > ended_regions_.size()) return true;
  return std::find(ended_regions_.end() - static_cast<ptrdiff_t>(since), ended_regions_.end(),
                   lkey) != ended_regions_.end();
}

std::unique_ptr<Train> Core::TakeLocal() {
  std::unique_ptr<Train> train = std::move(local_.front());
  local_.PopFront();
  local_taken_++;
  return train;
}

void Core::GiveBack(std::unique_ptr<Train> train) { spare_.push_back(std::move(train)); }

namespace {

bool IsSend(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

// Texts of ibv_wc_status_str. That function itself is in the clients' library.
std::string_view StatusText(uint32_t status) {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      return "local length error";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local QP operation error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "Work Request Flushed Error";
    case IBV_WC_MW_BIND_ERR:
      return "memory bind operation error";
    case IBV_WC_BAD_RESP_ERR:
      return "bad response error";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request error";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR retry counter exceeded";
    default:
      return "general error";
  }
}

void WriteError(Core& core, Time now, const QueuePair& qp, const ib_uverbs_wc& wc,
                std::string_view queue) {
  if (!core.env.trace.wants_records()) return;
  core.env.trace.Write({.time = now,
                        .process = ProcessId::kNone,
                        .kind = "wc.error",
                        .object = "qp " + std::to_string(qp.qpn),
                        .what = std::string(StatusText(wc.status)),
                        .fields = {{"queue", std::string(queue)},
                                   {"wr_id", uint64_t{wc.wr_id}},
                                   {"status", int64_t{wc.status}}}});
}

}  // namespace

bool Core::CompleteSend(Time now, QpContext& context, const SendWqe& request) {
  const QueuePair& qp = *context.qp;
  const bool failed = request.status != IBV_WC_SUCCESS;
  if (!failed) {
    counters.messages_sent++;
    counters.bytes_sent += request.length;
    if (IsSend(request.opcode())) qp.device->counters.rdma_sends++;
    if (!qp.signal_all && (request.wr.send_flags & IBV_SEND_SIGNALED) == 0) return true;
  }
  CqEntry entry{};
  entry.timestamp_ns = static_cast<uint64_t>(now.time_since_epoch().count());
  entry.wc.wr_id = request.wr.wr_id;
  entry.wc.status = request.status;
  entry.wc.vendor_err = qp.device->profile.vendor_errors.Of(request.status, true);
  entry.wc.qp_num = qp.qpn;
  if (!failed) {
    entry.wc.opcode = CompletionOpcode(request.opcode());
    entry.wc.byte_len = request.length;
    if (request.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
        request.wr.opcode == IBV_WR_SEND_WITH_IMM) {
      entry.wc.wc_flags = IBV_WC_WITH_IMM;  // as in rxe's make_send_cqe
    }
  }
  if (failed && qp.device->profile.keeps_failed_opcodes) {
    entry.wc.opcode = CompletionOpcode(request.opcode());
  }
  if (failed) WriteError(*this, now, qp, entry.wc, "send");
  env.verbs.completions().PublishReceives();
  if (doors.completions) {
    return env.doors->Complete(
        now, {*context.qp, true, CompletionOpcode(request.opcode()), failed, entry});
  }
  return qp.send_cq->Push(entry, failed);
}

bool Core::CompleteReceive(Time now, QpContext& context, CqEntry& entry, bool solicited) {
  const QueuePair& qp = *context.qp;
  entry.timestamp_ns = static_cast<uint64_t>(now.time_since_epoch().count());
  entry.wc.qp_num = qp.qpn;
  const auto status = ibv_wc_status(entry.wc.status);
  entry.wc.vendor_err = qp.device->profile.vendor_errors.Of(status, false);
  if (status == IBV_WC_SUCCESS) {
    qp.device->counters.rdma_recvs++;
  } else {
    WriteError(*this, now, qp, entry.wc, "receive");
    solicited = true;
  }
  env.verbs.completions().NoteReceive();
  if (doors.completions) {
    const auto opcode = ibv_wc_opcode(entry.wc.opcode);
    return env.doors->Complete(now, {*context.qp, false, opcode, solicited, entry});
  }
  return qp.recv_cq->Push(entry, solicited);
}

void Core::TraceRetry(Time now, const QpContext& context, const char* why) {
  if (!env.trace.wants_records()) return;
  env.trace.Write({.time = now,
                   .process = ProcessId::kNone,
                   .kind = "rc.retry",
                   .object = "qp " + std::to_string(context.qp->qpn),
                   .what = why,
                   .fields = {{"psn", uint64_t{context.requester.unacked_psn}},
                              {"retries_left", uint64_t{context.requester.retries_left}},
                              {"rnr_retries_left", uint64_t{context.requester.rnr_retries_left}}}});
}

void AddressRc(const QpContext& context, wire::Operation operation, Train& train) {
  const QueuePair& qp = *context.qp;
  static constexpr wire::PacketHeaders kEmpty;  // a copy costs less than filling in defaults
  train.headers = kEmpty;
  train.headers.transport = wire::TransportClass::kRc;
  train.headers.operation = operation;
  train.headers.destination_qpn = qp.attr.dest_qp_num;
  train.headers.pkey = qp.device->PkeyAt(qp.attr.pkey_index);
  train.source = qp.path.source;
  train.destination = qp.path.destination;
  train.traffic_class = qp.path.traffic_class;
  train.hop_limit = qp.path.hop_limit;
  train.sender_qpn = qp.qpn;
  train.begins = train.ends = true;
  train.packets = 1;
  train.mtu_bytes = context.mtu_bytes;
  train.is_bytes = false;
  train.bytes = {};
  train.parts = {};
  train.pieces.Clear();
  train.origin = train.answerer = 0;
  train.epoch = train.answerer_epoch = 0;
  train.placed = train.source_failed = train.was_parked = false;
}

}  // namespace rdmaemu::transport
