#include "emulator/transport/send_wqe.h"

#include <atomic>
#include <cstring>

#include "emulator/abi/send_entry.h"
#include "emulator/transport/payload_owner.h"

namespace rdmaemu::transport {
namespace {

bool IsData(uint32_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool OpcodeFits(const Profile& profile, ibv_qp_type type, uint32_t opcode) {
  switch (opcode) {
    case kWrFlush:
      return type == IBV_QPT_RC && profile.serves_flushes();
    case IBV_WR_ATOMIC_WRITE:
      return type == IBV_QPT_RC && profile.serves_atomic_writes();
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_BIND_MW:
      return type == IBV_QPT_RC || type == IBV_QPT_UC;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_LOCAL_INV:
      return type == IBV_QPT_RC;
    default:
      return false;
  }
}

// Returns the bytes of a slot behind its entry.
uint32_t RoomOf(const QueuePair& qp) {
  return qp.send_ring.slot_bytes() - static_cast<uint32_t>(sizeof(SendEntry));
}

ibv_wc_status CopyInline(const QueuePair& qp, const SendEntry& shared, uint32_t length,
                         SendWqe& out) {
  if (!IsData(out.wr.opcode) || length > RoomOf(qp)) return IBV_WC_LOC_QP_OP_ERR;
  out.data = {shared.Data(), length};
  out.length = length;
  return IBV_WC_SUCCESS;
}

// Copies the word of an ATOMIC WRITE. It is in the slot, at the place of inline data.
ibv_wc_status CopyWord(const QueuePair& qp, const SendEntry& shared, uint32_t length,
                       SendWqe& out) {
  if (length != sizeof(uint64_t) || length > RoomOf(qp)) return IBV_WC_LOC_QP_OP_ERR;
  out.data = {shared.Data(), length};
  out.length = length;
  return IBV_WC_SUCCESS;
}

ibv_wc_status CopySges(const QueuePair& qp, const SendEntry& shared, uint32_t count,
                       uint32_t max_message_bytes, SendWqe& out) {
  if (count > qp.cap.max_send_sge || count > RoomOf(qp) / sizeof(rxe_sge)) {
    return IBV_WC_LOC_QP_OP_ERR;
  }
  out.sges.assign(shared.Sges(), shared.Sges() + count);
  uint64_t total = 0;
  for (const rxe_sge& sge : out.sges) total += sge.length;
  if (total > max_message_bytes) return IBV_WC_LOC_LEN_ERR;
  out.length = static_cast<uint32_t>(total);
  if (out.is_atomic() && total < sizeof(uint64_t)) return IBV_WC_LOC_QP_OP_ERR;
  return IBV_WC_SUCCESS;
}

}  // namespace

void CopySendWqe(const QueuePair& qp, uint32_t index, uint32_t max_message_bytes, SendWqe& out) {
  auto& shared = *qp.send_ring.SlotAs<SendEntry>(index);
  // The program may change the entry at any time.
  SendEntry entry;
  std::memcpy(static_cast<void*>(&entry), &shared, sizeof entry);
  std::atomic_signal_fence(std::memory_order_acquire);  // the compiler must not read it again
  out.wr.wr_id = entry.wr_id;
  out.wr.opcode = entry.opcode;
  out.wr.send_flags = entry.send_flags;
  out.wr.ex.invalidate_rkey = entry.ex.invalidate_rkey;  // also the immediate data
  entry.GetOperation(out.wr.wr, shared.Rest(qp.send_ring.slot_bytes()));
  out.length = 0;
  out.sges.clear();
  out.data = {};
  out.is_inline = (out.wr.send_flags & IBV_SEND_INLINE) != 0;
  out.done = out.started = false;
  out.first_psn = out.last_psn = out.packets = out.sent = 0;
  if (!OpcodeFits(qp.device->profile, qp.type, out.wr.opcode)) {
    out.status = IBV_WC_LOC_QP_OP_ERR;
  } else if (out.is_local()) {
    out.status = IBV_WC_SUCCESS;
  } else if (out.is_flush()) {
    out.length = entry.length;
    out.status = IBV_WC_SUCCESS;
  } else if (out.is_atomic_write()) {
    out.status = CopyWord(qp, shared, entry.length, out);
  } else if (out.is_inline) {
    out.status = CopyInline(qp, shared, entry.length, out);
  } else {
    out.status = CopySges(qp, shared, entry.num_sge, max_message_bytes, out);
    if (IsData(out.wr.opcode)) {
      const auto sges = static_cast<uint32_t>(out.sges.size());
      out.data = TakenAtPost(qp, index, entry.state, sges, out.length);
    }
  }
}

ibv_wc_opcode CompletionOpcode(ibv_wr_opcode opcode) {
  if (opcode == static_cast<ibv_wr_opcode>(kWrFlush)) return static_cast<ibv_wc_opcode>(kWcFlush);
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_WRITE:
      return IBV_WC_ATOMIC_WRITE;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace rdmaemu::transport
