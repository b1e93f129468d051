// A send work request as the host keeps it: copied once out of the ring that the program shares,
// checked, and never read there again. Layout of the ring's entry: rxe_send_wqe (rdma_user_rxe.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

struct SendWqe {
  rxe_send_wr wr;   // wr_id, opcode, flags, immediate, remote side
  uint32_t length;  // bytes of payload; of the local buffer for READ and atomics
  bool is_inline;
  std::vector<rxe_sge> sges;
  // Inline data, or what the program took when it posted (slab.h), in shared memory: it stands
  // there until the request has completed. Empty: the payload is where the SGEs say.
  std::span<const std::byte> data;
  // IBV_WC_SUCCESS, or why the request will fail when its turn to complete comes.
  ibv_wc_status status;
  bool done;     // nothing to wait for any more
  bool started;  // has PSNs
  uint32_t first_psn, last_psn;
  uint32_t packets;  // PSNs it takes
  uint32_t sent;     // of them, in this pass

  ibv_wr_opcode opcode() const { return static_cast<ibv_wr_opcode>(wr.opcode); }
  bool is_read() const { return wr.opcode == IBV_WR_RDMA_READ; }
  bool is_atomic() const {
    return wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  bool is_write() const {
    return wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  bool is_local() const { return wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_BIND_MW; }
  bool needs_response() const { return is_read() || is_atomic(); }
};

// Copies entry `index` of the QP's send ring. Where the request is not one that the QP can send
// (rxe's wr_opcode_mask, num_sge above the cap, more inline data than the slot holds) its status
// says IBV_WC_LOC_QP_OP_ERR; IBV_WC_LOC_LEN_ERR when it is longer than max_message_bytes.
void CopySendWqe(const QueuePair& qp, uint32_t index, uint32_t max_message_bytes, SendWqe& out);

// The opcode of its completion; rxe's wr_to_wc_opcode.
ibv_wc_opcode CompletionOpcode(ibv_wr_opcode opcode);

}  // namespace rdmaemu::transport
