// Queue pairs: creation, numbers, states and attributes.
#include <algorithm>
#include <atomic>
#include <bit>

#include "emulator/abi/send_entry.h"
#include "emulator/verbs/qp_state_table.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {
namespace {

constexpr uint32_t kQpnMask = 0xffffff;
constexpr uint32_t kHighestQpn = 0xfffffe;  // 0xffffff is the multicast QPN
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint8_t kMaxTimeout = 31;
// RXE_ACCESS_SUPPORTED_QP of Linux 6.12 has all rights but these, up to the optional range.
constexpr unsigned kUnusedQpAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

// rxe_qp_chk_cap, siw_create_qp.
Status CheckCap(const Profile& profile, const ibv_qp_cap& cap, bool has_srq) {
  const ibv_device_attr& limits = profile.device.orig_attr;
  const auto max_wr = static_cast<uint32_t>(limits.max_qp_wr);
  const auto max_sge = static_cast<uint32_t>(limits.max_sge);
  if (cap.max_send_wr > max_wr || cap.max_send_sge > max_sge ||
      cap.max_inline_data > profile.max_inline_bytes) {
    return Fail(EINVAL);
  }
  if (!has_srq && (cap.max_recv_wr > max_wr || cap.max_recv_sge > max_sge)) return Fail(EINVAL);
  if (!profile.allows_empty_queues &&
      (cap.max_send_wr == 0 || (!has_srq && cap.max_recv_wr == 0))) {
    return Fail(EINVAL);
  }
  return {};
}

// Returns 0, or the errno for a type that the device does not support. The kernel has more types.
int CheckType(const Profile& profile, int type) {
  switch (type) {
    case IBV_QPT_RC:
      return 0;
    case IBV_QPT_UC:
      return profile.serves_uc ? 0 : EOPNOTSUPP;
    case IBV_QPT_UD:
      return profile.serves_ud ? 0 : EOPNOTSUPP;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
    default:
      return EINVAL;
  }
}

// Returns the capacities that rxe reports: a send slot's room counts both as SGEs and as inline
// data. A device never grants more inline data than its profile has.
ibv_qp_cap GrantedCap(ibv_qp_cap cap, bool has_srq, const Profile& profile) {
  if (profile.queue_depths == QueueDepths::kPowerOfTwo) return cap;
  const uint32_t room = std::max<uint32_t>(cap.max_send_sge * sizeof(rxe_sge), cap.max_inline_data);
  const auto most = static_cast<uint32_t>(profile.device.orig_attr.max_sge);
  cap.max_send_sge = std::min<uint32_t>(room / sizeof(rxe_sge), most);
  cap.max_inline_data = std::min(room, profile.max_inline_bytes);
  if (has_srq) cap.max_recv_wr = cap.max_recv_sge = 0;
  return cap;
}

bool IsState(int state) { return state >= IBV_QPS_RESET && state <= IBV_QPS_ERR; }

}  // namespace

const char* StateName(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? kNames[state] : "unknown";
}

Result<uint32_t> Verbs::NewQpn(const Profile& profile) {
  const uint32_t lowest = profile.rc.lowest_qpn + 1;
  if (qps_.size() >= (kHighestQpn - lowest) / 2) return Fail(ENOMEM);
  for (;;) {
    const uint32_t qpn = qpns_.Next();
    if (qpn >= lowest && qpn <= kHighestQpn && qps_.Find(qpn) == nullptr) return qpn;
  }
}

Status Verbs::MapQueues(Group& group, QueuePair& qp) {
  const QueueDepths depths = qp.device->profile.queue_depths;
  qp.send_entries = UsableDepth(depths, qp.cap.max_send_wr);
  const uint32_t send_slots = Ring::SlotsFor(qp.send_entries);
  const uint32_t send_bytes = SendSlotBytes(qp.cap.max_send_sge, qp.cap.max_inline_data);
  // Ring::Format clears a ring's head, and the library clears each request that it adds.
  const Result<Span> send = group.arena.Allocate(
      sizeof(QpControl) + Ring::BytesFor(send_slots, send_bytes), sizeof(QpControl));
  if (!send) return Pass(send.error());
  qp.send_memory = *send;
  qp.control = reinterpret_cast<QpControl*>(send->bytes);
  qp.send_ring = Ring(send->bytes + sizeof(QpControl), send_slots, send_bytes);
  qp.send_ring.Format(send->number);
  if (qp.srq != nullptr) return {};
  qp.recv_entries = UsableDepth(depths, qp.cap.max_recv_wr);
  const uint32_t recv_slots = Ring::SlotsFor(qp.recv_entries);
  const uint32_t recv_bytes = RecvSlotBytes(qp.cap.max_recv_sge);
  const Result<Span> recv = group.arena.Allocate(Ring::BytesFor(recv_slots, recv_bytes), 0);
  if (!recv) {
    group.arena.Free(qp.send_memory);
    return Pass(recv.error());
  }
  qp.recv_memory = *recv;
  qp.recv_ring = Ring(recv->bytes, recv_slots, recv_bytes);
  qp.recv_ring.Format(recv->number);
  return {};
}

// Checks the request and creates a QP with the request's values.
Result<std::unique_ptr<QueuePair>> Verbs::NewQp(GroupId id, const QpRequest& request) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(id, request.pd);
  if (!pd) return Pass(pd.error());
  Context& context = *(*pd)->context;
  const Profile& profile = context.device->profile;
  if (const int error = CheckType(profile, request.type); error != 0) return Fail(error);
  const Result<CompletionQueue*> send_cq = Find<CompletionQueue>(id, request.send_cq);
  const Result<CompletionQueue*> recv_cq = Find<CompletionQueue>(id, request.recv_cq);
  if (!send_cq) return Pass(send_cq.error());
  if (!recv_cq) return Pass(recv_cq.error());
  SharedReceiveQueue* srq = nullptr;
  if (request.srq != 0) {
    const Result<SharedReceiveQueue*> asked = Find<SharedReceiveQueue>(id, request.srq);
    if (!asked) return Pass(asked.error());
    srq = *asked;
  }
  if ((*send_cq)->context != &context || (*recv_cq)->context != &context ||
      (srq != nullptr && srq->pd->context != &context)) {
    return Fail(EINVAL);
  }
  const Status fits = CheckCap(profile, request.cap, srq != nullptr);
  if (!fits) return Pass(fits.error());

  auto qp = std::make_unique<QueuePair>();
  qp->type = static_cast<ibv_qp_type>(request.type);
  qp->device = context.device;
  qp->pd = *pd;
  qp->send_cq = *send_cq;
  qp->recv_cq = *recv_cq;
  qp->srq = srq;
  qp->cookie = request.cookie;
  qp->signal_all = request.signal_all;
  qp->cap = GrantedCap(request.cap, srq != nullptr, profile);
  qp->attr = {};
  // The attributes that rxe reports before any is set. cur_qp_state stays 0 forever (measured).
  qp->attr.qp_state = qp->attr.cur_qp_state = IBV_QPS_RESET;
  qp->attr.path_mtu = IBV_MTU_256;
  qp->attr.ah_attr.is_global = qp->attr.alt_ah_attr.is_global = context.device->has_lids() ? 0 : 1;
  return qp;
}

Result<QueuePair*> Verbs::CreateQp(GroupId id, const QpRequest& request) {
  Result<std::unique_ptr<QueuePair>> made = NewQp(id, request);
  if (!made) return Pass(made.error());
  QueuePair& qp = **made;
  Group& group = GroupOf(id);
  Context& context = *qp.pd->context;
  const Result<uint32_t> qpn = NewQpn(qp.device->profile);
  if (!qpn) return Pass(qpn.error());
  qp.qpn = *qpn;
  const Status mapped = MapQueues(group, qp);
  if (!mapped) return Pass(mapped.error());
  const auto undo = [&](const Span& send, const Span& recv, int error) {
    group.arena.Free(send);
    group.arena.Free(recv);
    return Fail(error);
  };
  const Span send = qp.send_memory, recv = qp.recv_memory;
  const Result<uint32_t> doorbell = TakeDoorbell(group, &qp);
  if (!doorbell) return undo(send, recv, doorbell.error().code);
  qp.doorbell = *doorbell;
  const auto adopted = Adopt(context, qp.device->profile.device.orig_attr.max_qp, std::move(*made));
  if (!adopted) {
    FreeDoorbell(group, *doorbell);
    return undo(send, recv, adopted.error().code);
  }
  qp.order = ++group.qps_made;
  qps_.Insert(qp.qpn, &qp);
  qp.pd->users++;
  qp.send_cq->users++;
  qp.recv_cq->users++;
  if (qp.srq != nullptr) qp.srq->users++;
  return &qp;
}

Result<const QueuePair*> Verbs::FindQpByHandle(GroupId group, Handle handle) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  return *qp;
}

Result<SegmentId> Verbs::LaneOf(GroupId group, Handle handle, bool receives) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  const SegmentId lane =
      transport_ == nullptr ? SegmentId::kNone : transport_->LaneOf(**qp, receives);
  if (lane == SegmentId::kNone) return Fail(ENOENT);
  return lane;
}

Result<LaneCounter> Verbs::LaneCounterOf(GroupId group, Handle handle) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  LaneCounter counter = transport_ == nullptr ? LaneCounter{} : transport_->LaneCounterOf(**qp);
  if (counter.here == CounterId::kNone && counter.there == nullptr) return Fail(ENOENT);
  return counter;
}

Status Verbs::CloseSentLane(Time now, GroupId group, Handle handle) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  if (transport_ != nullptr) transport_->CloseSentLane(now, **qp);
  return {};
}

Status Verbs::RaiseLaneEvent(GroupId group, Handle handle) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  if (transport_ != nullptr) transport_->RaiseLaneEvent(**qp);
  return {};
}

Result<ibv_qp_attr> Verbs::QueryQp(GroupId group, Handle handle) {
  const Result<QueuePair*> found = Find<QueuePair>(group, handle);
  if (!found) return Pass(found.error());
  QueuePair& qp = **found;
  const Profile& profile = qp.device->profile;
  ibv_qp_attr attr = qp.attr;
  if (transport_ != nullptr) transport_->ReadPsns(qp, attr);
  if (!profile.reports_qp_state) {
    // siw_query_qp: attributes that siw does not report stay 0.
    attr = {};
    attr.path_mtu = qp.device->active_mtu;
    attr.max_rd_atomic = qp.attr.max_rd_atomic;
    attr.max_dest_rd_atomic = qp.attr.max_dest_rd_atomic;
    attr.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  }
  if (profile.reports_current_state) attr.cur_qp_state = qp.state();
  attr.cap = qp.cap;
  attr.cap.max_send_wr = qp.send_entries;
  if (qp.srq == nullptr) attr.cap.max_recv_wr = qp.recv_entries;
  if (profile.queue_depths == QueueDepths::kPowerOfTwo) {
    attr.cap.max_inline_data = profile.max_inline_bytes;
  }
  return attr;
}

// Makes the checks of rxe_qp_chk_attr, after those of ib_uverbs and _ib_modify_qp.
Status Verbs::CheckQpAttr(const QueuePair& qp, int mask, const ibv_qp_attr& attr) const {
  if ((mask & IBV_QP_AV) != 0) {
    const Result<Path> path = ResolvePath(*qp.device, attr.ah_attr);
    if (!path) return Pass(path.error());
  }
  if ((mask & IBV_QP_ALT_PATH) != 0) {
    const Result<Path> path = ResolvePath(*qp.device, attr.alt_ah_attr);
    if (!path) return Pass(path.error());
    if (attr.alt_port_num != Device::kPort || attr.alt_timeout > kMaxTimeout) return Fail(EINVAL);
  }
  const ibv_qp_state from = (mask & IBV_QP_CUR_STATE) != 0 ? attr.cur_qp_state : qp.state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  if (!IsState(from) || !IsState(to)) return Fail(EINVAL);
  if (!QpTransitionAllowed(qp.type, from, to, mask)) return Fail(EINVAL);
  // While the send queue is draining, only ERR and RESET are allowed.
  if ((mask & IBV_QP_STATE) != 0 && qp.state() == IBV_QPS_SQD && qp.attr.sq_draining != 0 &&
      to != IBV_QPS_ERR && to != IBV_QPS_RESET) {
    return Fail(EINVAL);
  }
  const ibv_device_attr& limits = qp.device->profile.device.orig_attr;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != Device::kPort) return Fail(EINVAL);
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && qp.device->profile.checks_pkey_index &&
      attr.pkey_index >= qp.device->pkeys.size()) {
    return Fail(EINVAL);
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (MtuBytes(attr.path_mtu) == 0 || attr.path_mtu > qp.device->profile.port.max_mtu)) {
    return Fail(EINVAL);
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > limits.max_qp_rd_atom) {
    return Fail(EINVAL);
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && qp.device->profile.checks_responder_depth &&
      attr.max_dest_rd_atomic > limits.max_qp_rd_atom) {
    return Fail(EINVAL);
  }
  if ((mask & IBV_QP_TIMEOUT) != 0 && attr.timeout > kMaxTimeout) return Fail(EINVAL);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && qp.device->profile.refuses_unused_access &&
      (attr.qp_access_flags & kUnusedQpAccess) != 0) {
    return Fail(EINVAL);
  }
  return {};
}

// rxe_qp_from_attr. The attributes have been checked.
void Verbs::ApplyQpAttr(QueuePair& qp, int mask, const ibv_qp_attr& from) {
  ibv_qp_attr& to = qp.attr;
  const auto take = [&](int bit, auto ibv_qp_attr::*field) {
    if ((mask & bit) != 0) to.*field = from.*field;
  };
  take(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
  if ((mask & IBV_QP_DEST_QPN) != 0) to.dest_qp_num = from.dest_qp_num & kQpnMask;
  if ((mask & IBV_QP_RQ_PSN) != 0) to.rq_psn = from.rq_psn & kPsnMask;
  if ((mask & IBV_QP_SQ_PSN) != 0) to.sq_psn = from.sq_psn & kPsnMask;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to.max_rd_atomic = RoundedReads(from.max_rd_atomic);
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
    to.max_dest_rd_atomic = RoundedReads(from.max_dest_rd_atomic);
  }
  if ((mask & IBV_QP_AV) != 0) {
    to.ah_attr = from.ah_attr;
    qp.path = *ResolvePath(*qp.device, from.ah_attr);
  }
  if ((mask & IBV_QP_ALT_PATH) != 0) {
    to.alt_ah_attr = from.alt_ah_attr;
    take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_pkey_index);
    take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_port_num);
    take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_timeout);
  }
}

Status Verbs::ModifyQp(Time now, GroupId group, Handle handle, int mask, const ibv_qp_attr& attr) {
  const Result<QueuePair*> found = Find<QueuePair>(group, handle);
  if (!found) return Pass(found.error());
  QueuePair& qp = **found;
  // A right that ends must not let a copy arrive later.
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) Quiesce(QpPayloads{qp});
  if (qp.device->profile.cm.manager == ConnectionManager::kIwarp) {
    return ModifyIwarpQp(now, qp, mask, attr);
  }
  const Status checked = CheckQpAttr(qp, mask, attr);
  if (!checked) return checked;
  ApplyQpAttr(qp, mask, attr);
  if ((mask & IBV_QP_STATE) != 0) {
    SetQpState(now, qp, attr.qp_state);
  } else if (transport_ != nullptr && mask != 0) {
    transport_->QpAttributesChanged(now, qp, mask);
  }
  return {};
}

void Verbs::SetQpState(Time now, QueuePair& qp, ibv_qp_state to) {
  // Messages that were sent before the change are received before it.
  if (transport_ != nullptr) transport_->CloseLanes();
  const ibv_qp_state from = qp.state();
  qp.attr.qp_state = to;
  if (to == IBV_QPS_RESET) {
    // Reset discards work without completions (rxe_queue_reset).
    qp.send_ring.Clear();
    if (qp.recv_ring) qp.recv_ring.Clear();
    qp.attr.sq_draining = 0;
  }
  std::atomic_ref(qp.control->state).store(to, std::memory_order_release);
  if (environment_.trace.wants_records()) {
    environment_.trace.Write({now,
                              ProcessId::kNone,
                              "qp.state",
                              "qp " + std::to_string(qp.qpn),
                              std::string(StateName(from)) + " -> " + StateName(to),
                              {}});
  }
  if (transport_ != nullptr) transport_->QpStateChanged(now, qp, from);
}

void Verbs::FailQp(Time now, QueuePair& qp) {
  if (qp.state() == IBV_QPS_ERR || qp.state() == IBV_QPS_RESET) return;
  SetQpState(now, qp, IBV_QPS_ERR);
}

void Verbs::FailQp(Time now, GroupId group, Handle handle) {
  if (const Result<QueuePair*> qp = Find<QueuePair>(group, handle)) FailQp(now, **qp);
}

Result<uint32_t> Verbs::DestroyQp(Time now, GroupId group, Handle handle) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  if ((*qp)->multicast_groups != 0) return Fail(EBUSY);
  const uint32_t reported = (*qp)->async_reported;
  RemoveQp(now, **qp);
  return reported;
}

void Verbs::RemoveQp(Time now, QueuePair& qp) {
  Context& context = *qp.pd->context;
  Group& group = GroupOf(context.group);
  if (transport_ != nullptr) transport_->QpDestroyed(now, qp);
  if (qp.multicast_groups != 0) multicast_.DetachAll(qp);
  if (qp.bound_windows != 0) {
    for (const Handle handle : group.handles[static_cast<size_t>(ObjectKind::kMw)]) {
      MemoryWindow& window = *handles_.Find<MemoryWindow>(context.group, handle);
      if (window.qp == &qp) Unbind(window);
    }
  }
  ForgetAsync(context, qp.handle);
  FreeDoorbell(group, qp.doorbell);
  qp.send_ring.End();
  qp.recv_ring.End();
  group.arena.Free(qp.send_memory);
  group.arena.Free(qp.recv_memory);
  qps_.Erase(qp.qpn);
  qp.pd->users--;
  qp.send_cq->users--;
  qp.recv_cq->users--;
  if (qp.srq != nullptr) qp.srq->users--;
  Drop(context, qp);
}

QueuePair* Verbs::FindQp(const NetAddress& local, uint32_t qpn) {
  QueuePair** found = qps_.Find(qpn);
  if (found == nullptr) return nullptr;
  QueuePair* qp = *found;
  // Most connected QPs use their own address. UD and others accept any address of the device.
  if (qp->path.source == local && !links_may_be_down_) return qp;
  return OwnerOf(local) == qp->device ? qp : nullptr;
}

}  // namespace rdmaemu
