// Posting: writes work requests to queues in shared memory, and rings one doorbell per list. Checks
// and errnos are those of rdma-core's rxe provider and the kernel's rxe_post_send.

#include <string.h>

#include "shim/verbs/lanes.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/own_execution.h"
#include "shim/verbs/payloads.h"
#include "shim/verbs/recv_request.h"

namespace rdmaemu::shim {
namespace {

bool IsAtomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

uint64_t TotalBytes(const ibv_sge* sges, int count) {
  uint64_t total = 0;
  for (int i = 0; i < count; i++) total += sges[i].length;
  return total;
}

ibv_qp_state StateOf(const QueuePair& qp) {
  return static_cast<ibv_qp_state>(
      std::atomic_ref(qp.control->state).load(std::memory_order_acquire));
}

// Returns true for operations and SGE counts that the device does not support.
bool IsMissing(const Context& context, const ibv_send_wr& wr) {
  const uint32_t missing = context.missing;
  switch (wr.opcode) {
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return (missing & kMissingImmediateData) != 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return (missing & kMissingAtomics) != 0;
    case IBV_WR_BIND_MW:
      return (missing & kMissingWindows) != 0;
    case IBV_WR_RDMA_READ:
      return static_cast<uint32_t>(wr.num_sge) > context.max_read_sges;
    default:
      return false;
  }
}

bool IsRefusedAddress(const QueuePair& qp, const ibv_send_wr& atomic) {
  return (atomic.wr.atomic.remote_addr & 7) != 0 &&
         (Of(qp.base.context)->missing & kMissingMisalignedAtomics) != 0;
}

int CheckSend(const QueuePair& qp, const ibv_send_wr& wr, uint64_t bytes) {
  if (IsMissing(*Of(qp.base.context), wr)) return EINVAL;
  if (bytes > UINT32_MAX) return EINVAL;
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (IsAtomic(wr.opcode) && (bytes < 8 || IsRefusedAddress(qp, wr))) return EINVAL;
  if (is_inline && bytes > qp.max_inline_bytes) return EINVAL;
  if (is_inline && (IsAtomic(wr.opcode) || wr.opcode == IBV_WR_RDMA_READ)) return EINVAL;
  if (wr.opcode == IBV_WR_BIND_MW && (wr.num_sge != 0 || wr.bind_mw.mw == nullptr)) return EINVAL;
  if (qp.base.qp_type == IBV_QPT_UD && wr.wr.ud.ah == nullptr) return EINVAL;
  return 0;
}

void FillWindow(SendOperation& out, const ibv_send_wr& wr) {
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  out.mw.addr = info.addr;
  out.mw.length = info.length;
  out.mw.mr_lkey = info.mr == nullptr ? 0 : info.mr->lkey;
  out.mw.mw_rkey = wr.bind_mw.mw->rkey;
  out.mw.rkey = wr.bind_mw.rkey;
  out.mw.access = info.mw_access_flags;
}

void FillAtomic(SendOperation& out, const ibv_send_wr& wr) {
  out.atomic.remote_addr = wr.wr.atomic.remote_addr;
  out.atomic.compare_add = wr.wr.atomic.compare_add;
  out.atomic.swap = wr.wr.atomic.swap;
  out.atomic.rkey = wr.wr.atomic.rkey;
  out.atomic.reserved = 0;
}

void FillOperation(const QueuePair& qp, SendEntry& out, const ibv_send_wr& wr) {
  SendOperation all;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      out.operation.rdma = {wr.wr.rdma.remote_addr, wr.wr.rdma.rkey, 0};
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      FillAtomic(all, wr);
      out.SetOperation(all, qp.send_ring.slot_bytes());
      break;
    case IBV_WR_BIND_MW:
      FillWindow(all, wr);
      out.SetOperation(all, qp.send_ring.slot_bytes());
      break;
    default:
      if (qp.base.qp_type == IBV_QPT_UD) {
        out.operation.ud = {wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey, 0, wr.wr.ud.ah->handle};
      }
      break;
  }
}

void FillData(SendEntry& out, const ibv_send_wr& wr, uint32_t bytes) {
  out.length = bytes;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    std::byte* to = out.Data();
    for (int i = 0; i < wr.num_sge; i++) {
      const ibv_sge& sge = wr.sg_list[i];
      if (sge.length == 0) continue;
      memcpy(to, FromCookie<void>(sge.addr), sge.length);
      to += sge.length;
    }
  } else {
    static_assert(sizeof(rxe_sge) == sizeof(ibv_sge));
    out.num_sge = static_cast<uint32_t>(wr.num_sge);
    if (wr.num_sge > 0) {
      memcpy(out.Data(), wr.sg_list, static_cast<size_t>(wr.num_sge) * sizeof(ibv_sge));
    }
  }
}

void FillSend(QueuePair& qp, uint32_t index, const ibv_send_wr& wr, uint32_t bytes) {
  SendEntry& out = *qp.send_ring.SlotAs<SendEntry>(index);
  memset(static_cast<void*>(&out), 0, sizeof out);
  out.wr_id = wr.wr_id;
  out.opcode = wr.opcode;
  out.send_flags = wr.send_flags;
  out.ex.invalidate_rkey = wr.invalidate_rkey;  // a union: also copies the immediate data
  FillOperation(qp, out, wr);
  FillData(out, wr, bytes);
  TakePayload(qp, index);
}

// The poster's view of a ring. The host's index is read again only when the queue looks full,
// because each read of it costs the host a transfer of the cache line.
struct PostPosition {
  uint32_t producer, consumer;

  explicit PostPosition(const Ring& ring) : producer(ring.Producer()), consumer(ring.Consumer()) {}
  bool IsFull(const Ring& ring, uint32_t entries) {
    if (ring.Distance(consumer, producer) < entries) return false;
    consumer = ring.Consumer();
    return ring.Distance(consumer, producer) >= entries;
  }
};

int PostOneSend(QueuePair& qp, PostPosition& at, const ibv_send_wr& wr) {
  // rdma-core's rxe provider reads the list before this check, and may read beyond its end.
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.max_send_sge) return EINVAL;
  const uint64_t bytes = TotalBytes(wr.sg_list, wr.num_sge);
  const int error = CheckSend(qp, wr, bytes);
  if (error != 0) return error;
  if (at.IsFull(qp.send_ring, qp.send_entries)) return ENOMEM;
  FillSend(qp, at.producer, wr, static_cast<uint32_t>(bytes));
  if (wr.opcode == IBV_WR_BIND_MW) SetRkeyAtBind(qp.base, *wr.bind_mw.mw, wr.bind_mw.rkey);
  at.producer = qp.send_ring.Next(at.producer);
  return 0;
}

int PostOneRecv(Ring& ring, uint32_t entries, uint32_t max_sge, PostPosition& at,
                const ibv_recv_wr& wr) {
  if (at.IsFull(ring, entries)) return ENOMEM;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > max_sge ||
      sizeof(rxe_recv_wqe) + static_cast<size_t>(wr.num_sge) * sizeof(rxe_sge) >
          ring.slot_bytes()) {
    return EINVAL;
  }
  const uint64_t bytes = TotalBytes(wr.sg_list, wr.num_sge);
  auto* out = ring.SlotAs<rxe_recv_wqe>(at.producer);
  memset(static_cast<void*>(out), 0, sizeof *out);
  out->wr_id = wr.wr_id;
  out->dma.length = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  out->dma.resid = out->dma.length;
  out->dma.num_sge = static_cast<uint32_t>(wr.num_sge);
  if (wr.num_sge > 0) {
    memcpy(out + 1, wr.sg_list, static_cast<size_t>(wr.num_sge) * sizeof(ibv_sge));
  }
  at.producer = ring.Next(at.producer);
  return 0;
}

}  // namespace

int PostReceives(Ring& ring, uint32_t entries, uint32_t max_sge, ibv_recv_wr* wr,
                 ibv_recv_wr** bad) {
  PostPosition at(ring);
  const uint32_t before = at.producer;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = PostOneRecv(ring, entries, max_sge, at, *wr);
    if (error != 0) {
      *bad = wr;
      break;
    }
  }
  if (at.producer != before) {
    client::ReleaseToDevice();
    ring.SetProducer(at.producer);
  }
  return error;
}

// Posts the whole list, or the requests before *bad. Unlike rxe, posts nothing to a queue pair that
// cannot send. In rxe such requests stay in the queue and are flushed later. Fails with EINVAL if a
// forked process shares the queue and has destroyed it.
int PostSend(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  QueuePair& qp = *Of(base);
  if (bad == nullptr || wr == nullptr) return EINVAL;
  if (client::HostIsGone(base->handle)) {
    *bad = wr;
    return EIO;
  }
  int error = 0;
  bool posted = false;
  {
    ForkLockGuard guard(qp.send_lock);
    if (!qp.send_ring.IsProducersStill()) {
      *bad = wr;
      return EINVAL;
    }
    const ibv_qp_state state = StateOf(qp);
    if (state < IBV_QPS_RTS && (Of(base->context)->missing & kMissingEarlySends) != 0) {
      *bad = wr;
      return EINVAL;
    }
    PostPosition at(qp.send_ring);
    const uint32_t before = at.producer;
    qp.memory.Begin();
    for (; wr != nullptr; wr = wr->next) {
      error = PostOneSend(qp, at, *wr);
      if (error != 0) {
        *bad = wr;
        break;
      }
    }
    if (at.producer != before) {
      client::ReleaseToDevice();
      posted = !ExecutePosted(qp, before, qp.send_ring.Distance(before, at.producer));
      if (posted) qp.send_ring.SetProducer(at.producer);
    }
  }
  if (posted) client::RingQueue(base->handle, qp.doorbell);
  return error;
}

int PostRecv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  QueuePair& qp = *Of(base);
  if (bad == nullptr || wr == nullptr || !qp.recv_ring) return EINVAL;
  if (!qp.recv_ring.IsProducersStill()) return kPostedToNoQueue;
  const uint32_t missing = Of(base->context)->missing;
  if ((missing & kMissingReceivesInReset) != 0 && StateOf(qp) == IBV_QPS_RESET) {
    *bad = wr;
    return EINVAL;
  }
  int error;
  {
    ForkLockGuard guard(qp.recv_lock);
    error = PostReceives(qp.recv_ring, qp.recv_entries, qp.max_recv_sge, wr, bad);
    GiveRoom(qp);
  }
  // The host finds receives when a packet arrives. In ERR no packet arrives. Some devices flush
  // late receives in ERR, so the host must be notified.
  if (StateOf(qp) == IBV_QPS_ERR) client::RingQueue(base->handle, qp.doorbell);
  return error;
}

}  // namespace rdmaemu::shim
