// Queue pairs: creation, state, attributes. Posting is in post.cc and qp_ex.cc.

#include "emulator/base/newer_verbs.h"
#include "shim/verbs/lanes.h"
#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

// Uses the queues that a reply describes. Returns 0 or an errno.
int Adopt(QueuePair& qp, const CreateQpOut& reply) {
  if (!client::IsDoorbell(reply.handle, reply.doorbell)) return EPROTO;
  std::byte* send = client::MapSpan(reply.send_queue);
  qp.send_ring =
      RingAt(send, reply.send_queue, sizeof(QpControl), reply.send_slots, reply.send_slot_bytes);
  if (!qp.send_ring) return errno;
  qp.control = reinterpret_cast<QpControl*>(send);
  qp.takes_payloads = client::HasPayloadShortcuts(reply.handle);
  if (reply.recv_queue.length > 0) {
    qp.recv_ring = RingAt(client::MapSpan(reply.recv_queue), reply.recv_queue, 0, reply.recv_slots,
                          reply.recv_slot_bytes);
    if (!qp.recv_ring) return errno;
  }
  const uint32_t slot_bytes = reply.send_slot_bytes;
  if (reply.cap.max_send_sge > slot_bytes / sizeof(rxe_sge) ||
      reply.cap.max_inline_data > slot_bytes ||
      slot_bytes < SendSlotBytes(reply.cap.max_send_sge, reply.cap.max_inline_data)) {
    return EPROTO;
  }
  qp.doorbell = reply.doorbell;
  qp.send_entries = reply.send_entries;
  qp.recv_entries = reply.recv_entries;
  qp.cap = reply.cap;
  qp.max_send_sge = reply.cap.max_send_sge;
  qp.max_recv_sge = reply.cap.max_recv_sge;
  qp.max_inline_bytes = reply.cap.max_inline_data;
  return 0;
}

}  // namespace

QueuePair* CreateQueuePair(ibv_pd* pd, const ibv_qp_init_attr& attr, ibv_qp_cap& cap) {
  // The real library crashes in this case.
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return NullWith(EINVAL);
  QueuePair* qp = New<QueuePair>();
  if (qp == nullptr) return nullptr;
  CreateQpIn in{};
  in.pd = pd->handle;
  in.send_cq = attr.send_cq->handle;
  in.recv_cq = attr.recv_cq->handle;
  in.srq = attr.srq == nullptr ? 0 : attr.srq->handle;
  in.type = attr.qp_type;
  in.signal_all = attr.sq_sig_all != 0 ? 1 : 0;
  in.cap = cap;
  in.context = HandleOf(pd->context);
  in.cookie = CookieOf(qp);
  CreateQpOut reply{};
  int error = client::Call(CallOp::kCreateQp, in, reply);
  if (error == 0) {
    error = Adopt(*qp, reply);
    if (error != 0) {
      DestroyOut destroyed{};
      CallOnHandle(CallOp::kDestroyQp, pd->context, reply.handle, destroyed);
    }
  }
  if (error != 0) {
    free(qp);
    return NullWith(error);
  }
  ibv_qp& base = qp->base;
  base.context = pd->context;
  base.qp_context = attr.qp_context;
  base.pd = pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.srq = attr.srq;
  base.handle = reply.handle;
  base.qp_num = reply.qpn;
  base.state = IBV_QPS_RESET;
  base.qp_type = attr.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  qp->signal_all = attr.sq_sig_all != 0;
  cap = reply.cap;
  return qp;
}

// Follows ibv_create_qp_ex(3) as far as rxe does: PD, creation flags (none) and send_ops_flags.
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  constexpr uint64_t kUdOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kUcOps = kUdOps | IBV_QP_EX_WITH_RDMA_WRITE |
                              IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW;
  constexpr uint64_t kRcOps = kUcOps | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
  if ((attr->comp_mask & ~kKnown) != 0) return NullWith(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr ||
      attr->pd->context != context) {
    return NullWith(EINVAL);
  }
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0) {
    return NullWith(EOPNOTSUPP);
  }
  const bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (extended && (Of(context)->missing & kMissingExtendedCalls) != 0) return NullWith(EOPNOTSUPP);
  // rdma-core 44 accepts no other operations. Newer operations are accepted only if the device has
  // them.
  const uint32_t missing = Of(context)->missing;
  const uint64_t newer_ops =
      ((missing & kMissingAtomicWrites) == 0 ? uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE} : 0) |
      ((missing & kMissingFlushes) == 0 ? kQpExWithFlush : 0);
  const uint64_t possible = attr->qp_type == IBV_QPT_RC   ? kRcOps | newer_ops
                            : attr->qp_type == IBV_QPT_UC ? kUcOps
                            : attr->qp_type == IBV_QPT_UD ? kUdOps
                                                          : 0;
  if (extended && (attr->send_ops_flags & ~possible) != 0) return NullWith(EOPNOTSUPP);
  const ibv_qp_init_attr basic{attr->qp_context, attr->send_cq, attr->recv_cq,   attr->srq,
                               attr->cap,        attr->qp_type, attr->sq_sig_all};
  QueuePair* qp = CreateQueuePair(attr->pd, basic, attr->cap);
  if (qp == nullptr) return nullptr;
  if (extended) SetBuilders(*qp, attr->send_ops_flags);
  return &qp->base;
}

}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  QueuePair* qp = CreateQueuePair(pd, *attr, attr->cap);
  return qp == nullptr ? nullptr : &qp->base;
}

RDMAEMU_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return Of(qp)->has_extended ? &Of(qp)->extended : nullptr;
}

static void PurgeQueues(const ibv_qp& qp) {
  if ((Of(qp.context)->missing & kMissingPurge) != 0) return;
  PurgeCompletions(*Of(qp.recv_cq), qp.qp_num);
  if (qp.send_cq != qp.recv_cq) PurgeCompletions(*Of(qp.send_cq), qp.qp_num);
}

RDMAEMU_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if ((mask & IBV_QP_RATE_LIMIT) != 0) return ErrnoWith(EOPNOTSUPP);
  ModifyQpIn in{};
  in.handle = qp->handle;
  in.mask = mask;
  in.attr = *attr;
  in.context = HandleOf(qp->context);
  const int error = client::Call(CallOp::kModifyQp, in);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) {
    qp->state = attr->qp_state;
    if (qp->state == IBV_QPS_RESET) PurgeQueues(*qp);
  }
  return ErrnoWith(error);
}

RDMAEMU_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask,
                                ibv_qp_init_attr* init_attr) {
  QueryQpOut reply{};
  const int error = CallOnHandle(CallOp::kQueryQp, qp->context, qp->handle, reply);
  if (error != 0) return ErrnoWith(error);
  *attr = reply.attr;
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  *init_attr = {qp->qp_context,
                qp->send_cq,
                qp->recv_cq,
                qp->srq,
                reply.cap,
                qp->qp_type,
                static_cast<int>(reply.signal_all)};
  return 0;
}

RDMAEMU_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  DestroyOut reply{};
  const int error = CallOnHandle(CallOp::kDestroyQp, qp->context, qp->handle, reply);
  if (error != 0) return ErrnoWith(error);
  ForgetLanes(*Of(qp));
  PurgeQueues(*qp);
  WaitForAcks(qp->mutex, qp->cond, qp->events_completed, reply.async_events_reported);
  pthread_mutex_destroy(&qp->mutex);
  pthread_cond_destroy(&qp->cond);
  Free(Of(qp));
  return 0;
}

// A device without enhanced connection establishment: it offers no ECE and accepts none. As in
// libibverbs, ibv_query_ece does not change errno.
RDMAEMU_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
RDMAEMU_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  return ErrnoWith(ece->vendor_id == 0 ? EINVAL : EOPNOTSUPP);
}

RDMAEMU_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }
