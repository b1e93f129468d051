// The host's copy of a send work request. The host copies it once from the ring that it shares with
// the program, checks the copy, and never reads the ring's entry again (abi/send_entry.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/base/newer_verbs.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

struct SendWqe {
  rxe_send_wr wr;  // wr_id, opcode, flags, immediate data, operation; the rest is unused
  // Bytes of payload; of the local buffer for READ and atomics; of the remote range for FLUSH.
  uint32_t length;
  bool is_inline;
  std::vector<rxe_sge> sges;
  // Inline data, the 8 bytes of an ATOMIC WRITE, or the payload that the library copied at post.
  // The bytes are in the ring and stay valid until the request completes. Empty: the payload is at
  // the SGEs.
  std::span<const std::byte> data;
  // IBV_WC_SUCCESS, or the error with which the request will complete in its turn.
  ibv_wc_status status;
  bool done;     // needs nothing more, and completes when the requests before it have
  bool started;  // has PSNs
  uint32_t first_psn, last_psn;
  uint32_t packets;  // number of its PSNs
  uint32_t sent;     // PSNs sent since the last go-back

  ibv_wr_opcode opcode() const { return static_cast<ibv_wr_opcode>(wr.opcode); }
  bool is_read() const { return wr.opcode == IBV_WR_RDMA_READ; }
  bool is_atomic() const {
    return wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  bool is_write() const {
    return wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  bool is_atomic_write() const { return wr.opcode == IBV_WR_ATOMIC_WRITE; }
  bool is_flush() const { return wr.opcode == kWrFlush; }
  bool is_local() const { return wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_BIND_MW; }
  // Returns true when the response is a READ response. That response is empty unless this is a
  // READ.
  bool needs_read_response() const { return is_read() || is_atomic_write() || is_flush(); }
  bool needs_response() const { return needs_read_response() || is_atomic(); }
};

// Copies entry `index` of the QP's send ring. `out.status` is IBV_WC_LOC_QP_OP_ERR for a request
// that the QP cannot send. Reasons are an opcode outside rxe's wr_opcode_mask, a num_sge above the
// cap, or more inline data than the slot holds. `out.status` is IBV_WC_LOC_LEN_ERR above
// max_message_bytes.
void CopySendWqe(const QueuePair& qp, uint32_t index, uint32_t max_message_bytes, SendWqe& out);

// Returns the completion's opcode, as rxe's wr_to_wc_opcode does.
ibv_wc_opcode CompletionOpcode(ibv_wr_opcode opcode);

}  // namespace rdmaemu::transport
