// Extended posting: ibv_wr_start, one builder per request, setters, ibv_wr_complete. A thread holds
// the send lock from start to complete or abort. The host sees nothing before complete.

#include <string.h>

#include "emulator/base/newer_verbs.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/own_execution.h"
#include "shim/verbs/payloads.h"
#include "shim/verbs/watched.h"

namespace rdmaemu::shim {
namespace {

void Start(ibv_qp_ex* base) {
  QueuePair& qp = *Of(base);
  const bool is_gone = client::HostIsGone(qp.base.handle);
  qp.send_lock.Lock();
  qp.started_at = qp.next_slot = qp.send_ring.Producer();
  qp.building = nullptr;
  qp.build_error = is_gone ? EIO : qp.send_ring.IsProducersStill() ? 0 : EINVAL;
}

int CompleteNow(QueuePair& qp) {
  int error = qp.build_error;
  if (client::HostIsGone(qp.base.handle)) error = EIO;
  const auto state = std::atomic_ref(qp.control->state).load(std::memory_order_acquire);
  const bool is_early =
      state < IBV_QPS_RTS && (Of(qp.base.context)->missing & kMissingEarlySends) != 0;
  if (error == 0 && is_early) error = EINVAL;
  bool posted = error == 0 && qp.next_slot != qp.started_at;
  if (posted) {
    // Read payloads here and not in ibv_wr_set_sge, because the program may write its memory until
    // this call.
    qp.memory.Begin();
    for (uint32_t at = qp.started_at; at != qp.next_slot; at = qp.send_ring.Next(at)) {
      TakePayload(qp, at);
    }
    client::ReleaseToDevice();
    posted = !ExecutePosted(qp, qp.started_at, qp.send_ring.Distance(qp.started_at, qp.next_slot));
    if (posted) qp.send_ring.SetProducer(qp.next_slot);
  }
  qp.building = nullptr;
  qp.send_lock.Unlock();
  if (posted) client::RingQueue(qp.base.handle, qp.doorbell);
  return error;
}

void Abort(ibv_qp_ex* base) {
  QueuePair& qp = *Of(base);
  qp.building = nullptr;
  qp.send_lock.Unlock();
}

int Complete(ibv_qp_ex* base) {
  QueuePair& qp = *Of(base);
  bool completed = false;
  return Watched(
      CallOp::kPostSend, qp.base.handle,
      [&] {
        completed = true;
        return CompleteNow(qp);
      },
      [&](int error) {
        if (!completed) Abort(base);
        return error;
      });
}

// Returns the next request to fill. Returns nullptr if the list has failed already.
SendEntry* Begin(ibv_qp_ex* base, ibv_wr_opcode opcode) {
  QueuePair& qp = *Of(base);
  qp.building = nullptr;
  if (qp.build_error != 0) return nullptr;
  if (qp.send_ring.Next(qp.next_slot) == qp.send_ring.Consumer()) {
    qp.build_error = ENOMEM;
    return nullptr;
  }
  auto* wqe = qp.send_ring.SlotAs<SendEntry>(qp.next_slot);
  memset(static_cast<void*>(wqe), 0, sizeof *wqe);
  wqe->wr_id = base->wr_id;
  wqe->send_flags = base->wr_flags & ~unsigned{IBV_SEND_INLINE};
  wqe->opcode = opcode;
  qp.building = wqe;
  qp.next_slot = qp.send_ring.Next(qp.next_slot);
  return wqe;
}

// Sets the operation of the request that is being filled.
void SetOperation(ibv_qp_ex* base, const SendOperation& all) {
  QueuePair& qp = *Of(base);
  qp.building->SetOperation(all, qp.send_ring.slot_bytes());
}

void Rdma(ibv_qp_ex* base, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, __be32 imm) {
  SendEntry* wqe = Begin(base, opcode);
  if (wqe == nullptr) return;
  wqe->operation.rdma = {address, rkey, 0};
  wqe->ex.imm_data = imm;
}
void RdmaRead(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  Rdma(qp, IBV_WR_RDMA_READ, rkey, address, 0);
}
void RdmaWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  Rdma(qp, IBV_WR_RDMA_WRITE, rkey, address, 0);
}
void RdmaWriteImm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
  Rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
}

void Atomic(ibv_qp_ex* base, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
            uint64_t compare_add, uint64_t swap) {
  SendEntry* wqe = Begin(base, opcode);
  if (wqe == nullptr) return;
  SendOperation all;
  all.atomic = {address, compare_add, swap, rkey, 0};
  SetOperation(base, all);
}
void CompareSwap(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  Atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
}
void FetchAdd(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  Atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

// Copy the 8 bytes now, behind the request, where inline data would be.
void AtomicWrite(ibv_qp_ex* base, uint32_t rkey, uint64_t address, const void* word) {
  Rdma(base, IBV_WR_ATOMIC_WRITE, rkey, address, 0);
  SendEntry* wqe = Of(base)->building;
  if (wqe == nullptr) return;
  memcpy(wqe->Data(), word, sizeof(uint64_t));
  wqe->length = sizeof(uint64_t);
}

void Flush(ibv_qp_ex* base, uint32_t rkey, uint64_t address, size_t length, uint8_t placement,
           uint8_t selectivity) {
  SendEntry* wqe = Begin(base, static_cast<ibv_wr_opcode>(kWrFlush));
  if (wqe == nullptr) return;
  const FlushRequest flush{address, 0, rkey, placement, selectivity};
  SendOperation all{};
  memcpy(&all, &flush, sizeof flush);
  SetOperation(base, all);
  wqe->length = static_cast<uint32_t>(length);  // as rdma-core's wr_flush
}

void Send(ibv_qp_ex* qp) { Begin(qp, IBV_WR_SEND); }
void SendImm(ibv_qp_ex* qp, __be32 imm) {
  SendEntry* wqe = Begin(qp, IBV_WR_SEND_WITH_IMM);
  if (wqe != nullptr) wqe->ex.imm_data = imm;
}
void SendInv(ibv_qp_ex* qp, uint32_t rkey) {
  SendEntry* wqe = Begin(qp, IBV_WR_SEND_WITH_INV);
  if (wqe != nullptr) wqe->ex.invalidate_rkey = rkey;
}
void LocalInv(ibv_qp_ex* qp, uint32_t rkey) {
  SendEntry* wqe = Begin(qp, IBV_WR_LOCAL_INV);
  if (wqe != nullptr) wqe->ex.invalidate_rkey = rkey;
}
void BindWindow(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  SendEntry* wqe = Begin(qp, IBV_WR_BIND_MW);
  if (wqe == nullptr) return;
  SendOperation all;
  all.mw = {info->addr, info->length, info->mr == nullptr ? 0 : info->mr->lkey,
            mw->rkey,   rkey,         info->mw_access_flags};
  SetOperation(qp, all);
}

void SetUdAddress(ibv_qp_ex* base, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  SendEntry* wqe = Of(base)->building;
  if (wqe == nullptr) return;
  if (ah == nullptr) {
    Of(base)->build_error = EINVAL;
    return;
  }
  wqe->operation.ud = {qpn, qkey, 0, ah->handle};
}

void SetSges(ibv_qp_ex* base, size_t count, const ibv_sge* sges) {
  QueuePair& qp = *Of(base);
  SendEntry* wqe = qp.building;
  if (wqe == nullptr) return;
  uint64_t bytes = 0;
  if (count > qp.max_send_sge) qp.build_error = EINVAL;
  for (size_t i = 0; i < count && qp.build_error == 0; i++) bytes += sges[i].length;
  const bool is_atomic =
      wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (bytes > UINT32_MAX || (is_atomic && bytes < 8)) qp.build_error = EINVAL;
  if (qp.build_error != 0) return;
  wqe->length = static_cast<uint32_t>(bytes);
  wqe->num_sge = static_cast<uint32_t>(count);
  if (count > 0) memcpy(wqe->Data(), sges, count * sizeof *sges);
}
void SetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  SetSges(qp, 1, &sge);
}

void SetInlineList(ibv_qp_ex* base, size_t count, const ibv_data_buf* buffers) {
  QueuePair& qp = *Of(base);
  SendEntry* wqe = qp.building;
  if (wqe == nullptr || qp.build_error != 0) return;
  std::byte* to = wqe->Data();
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    if (buffers[i].length > qp.max_inline_bytes - bytes) {
      qp.build_error = EINVAL;
      return;
    }
    if (buffers[i].length > 0) memcpy(to + bytes, buffers[i].addr, buffers[i].length);
    bytes += buffers[i].length;
  }
  wqe->send_flags |= IBV_SEND_INLINE;
  wqe->length = static_cast<uint32_t>(bytes);
}
void SetInline(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{address, length};
  SetInlineList(qp, 1, &buffer);
}

}  // namespace

void SetBuilders(QueuePair& qp, uint64_t ops) {
  ibv_qp_ex& ex = qp.extended;
  qp.has_extended = true;
  ex.wr_start = Start;
  ex.wr_complete = Complete;
  ex.wr_abort = Abort;
  ex.wr_set_sge = SetSge;
  ex.wr_set_sge_list = SetSges;
  ex.wr_set_inline_data = SetInline;
  ex.wr_set_inline_data_list = SetInlineList;
  if (qp.base.qp_type == IBV_QPT_UD) ex.wr_set_ud_addr = SetUdAddress;
  // A builder that the program did not request stays NULL, as in the real library.
  if ((ops & IBV_QP_EX_WITH_RDMA_WRITE) != 0) ex.wr_rdma_write = RdmaWrite;
  if ((ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0) ex.wr_rdma_write_imm = RdmaWriteImm;
  if ((ops & IBV_QP_EX_WITH_SEND) != 0) ex.wr_send = Send;
  if ((ops & IBV_QP_EX_WITH_SEND_WITH_IMM) != 0) ex.wr_send_imm = SendImm;
  if ((ops & IBV_QP_EX_WITH_RDMA_READ) != 0) ex.wr_rdma_read = RdmaRead;
  if ((ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) != 0) ex.wr_atomic_cmp_swp = CompareSwap;
  if ((ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) != 0) ex.wr_atomic_fetch_add = FetchAdd;
  if ((ops & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0) ex.wr_atomic_write = AtomicWrite;
  if ((ops & kQpExWithFlush) != 0) qp.newer.wr_flush = Flush;
  if ((ops & IBV_QP_EX_WITH_LOCAL_INV) != 0) ex.wr_local_inv = LocalInv;
  if ((ops & IBV_QP_EX_WITH_BIND_MW) != 0) ex.wr_bind_mw = BindWindow;
  if ((ops & IBV_QP_EX_WITH_SEND_WITH_INV) != 0) ex.wr_send_inv = SendInv;
}

}  // namespace rdmaemu::shim
