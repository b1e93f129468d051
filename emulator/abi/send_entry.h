// A request in a send queue.
//
// rdma_rxe's own entry (rxe_send_wqe) has 216 bytes before its SGEs, of which a program sets 64.
// Each cache line of a request moves from the program's processor to the host's. So this entry has
// 48 bytes, and fills one line together with an SGE. A small payload is in the next lines:
//
//   SendEntry | SGEs, or inline data | payload that was taken at post | ... | rest of the operation
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/abi/slab.h"
#include "emulator/base/newer_verbs.h"
#include "emulator/base/uapi.h"

namespace rdmaemu {

// The fields of an operation: remote address and key, or the destination of a datagram. An atomic
// operation, BIND_MW and FLUSH use 32 bytes, the others 16.
using SendOperation = decltype(rxe_send_wr::wr);

struct SendEntry {
  // The first half of a SendOperation.
  union Operation {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
      uint32_t reserved;
    } rdma;
    struct {
      uint32_t remote_qpn;
      uint32_t remote_qkey;
      uint32_t reserved;
      uint32_t ah_num;
    } ud;
  };

  uint64_t wr_id;
  uint32_t opcode;      // ibv_wr_opcode
  uint32_t send_flags;  // ibv_send_flags
  union {
    uint32_t imm_data;  // big-endian
    uint32_t invalidate_rkey;
  } ex;
  uint32_t length;   // of the payload, or of the range of a FLUSH; bytes
  uint32_t num_sge;  // 0 with inline data
  uint32_t state;    // kPayloadTaken, or 0
  Operation operation;

  static constexpr size_t kOperationBytes = sizeof(Operation);

  // Returns the SGEs, or the inline data, or the word of an ATOMIC WRITE.
  std::byte* Data() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* Data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  const rxe_sge* Sges() const { return reinterpret_cast<const rxe_sge*>(this + 1); }
  // Returns the place of a payload that was taken at post.
  std::byte* Taken(uint32_t sges) { return Data() + size_t{sges} * sizeof(rxe_sge); }
  const std::byte* Taken(uint32_t sges) const { return Data() + size_t{sges} * sizeof(rxe_sge); }

  // `slot_bytes` is the length of the entry's slot.
  void SetOperation(const SendOperation& all, uint32_t slot_bytes) {
    std::memcpy(&operation, &all, kOperationBytes);
    if (IsLong(opcode)) {
      std::memcpy(Rest(slot_bytes), reinterpret_cast<const std::byte*>(&all) + kOperationBytes,
                  kOperationBytes);
    }
  }
  // Reads the whole operation into `all`, of which the rest stays as it is.
  void GetOperation(SendOperation& all, const std::byte* rest) const {
    std::memcpy(&all, &operation, kOperationBytes);
    if (IsLong(opcode)) {
      std::memcpy(reinterpret_cast<std::byte*>(&all) + kOperationBytes, rest, kOperationBytes);
    }
  }
  // Returns the place of the second half of a long operation.
  std::byte* Rest(uint32_t slot_bytes) {
    return reinterpret_cast<std::byte*>(this) + slot_bytes - kOperationBytes;
  }

 private:
  static bool IsLong(uint32_t opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
           opcode == IBV_WR_BIND_MW || opcode == kWrFlush;
  }
};
static_assert(sizeof(SendEntry) + sizeof(rxe_sge) == 64);
static_assert(offsetof(SendOperation, rdma.rkey) == offsetof(SendEntry::Operation, rdma.rkey));
static_assert(offsetof(SendOperation, ud.ah_num) == offsetof(SendEntry::Operation, ud.ah_num));
static_assert(sizeof(SendOperation::atomic) == 2 * SendEntry::kOperationBytes);
static_assert(sizeof(SendOperation::mw) == 2 * SendEntry::kOperationBytes);
static_assert(sizeof(FlushRequest) <= 2 * SendEntry::kOperationBytes);

// Returns the bytes of one send slot, rounded up to a power of two. The room for payloads is also
// that for the rest of an operation, which has no payload.
inline uint32_t SendSlotBytes(uint32_t max_sge, uint32_t max_inline_bytes) {
  static_assert(kSlabBytes >= SendEntry::kOperationBytes);
  const uint32_t with_sges = max_sge * sizeof(rxe_sge) + kSlabBytes;
  return std::bit_ceil(static_cast<uint32_t>(sizeof(SendEntry)) +
                       std::max(with_sges, max_inline_bytes));
}

}  // namespace rdmaemu
