// Small payloads in shared memory, so that moving them takes no system call. What a send carries is
// taken when the work is posted (a device may fetch it then) and stands in a slot beside the send
// queue; what a receive gets waits in a slot beside the completion queue and is handed out when the
// completion is polled.
//
// Both sides copy: a program that scribbles here changes its own payloads, nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/abi/ring.h"

namespace rdmaemu {

// The largest payload that travels this way: from about here on one copy between the processes is
// cheaper than two through shared memory.
inline constexpr uint32_t kSlabBytes = 256;

// rxe_send_wqe::state of an entry whose payload stands in its slab slot. Its SGEs stand in the
// entry as always: the host checks their keys, and reads the slot instead of the memory.
inline constexpr uint32_t kPayloadTaken = 1;

// What one completion of a receive still has to place.
struct ReceivePiece {
  uint64_t address, length;  // in the program's memory; bytes
};
struct alignas(64) ReceiveSlot {
  // Who moves the payload is who exchanges kWaiting for kTaken: the program when it polls, or the
  // host when somebody else is about to look at the same memory.
  uint32_t state;
  uint32_t pieces;
  ReceivePiece to[2];
  uint64_t reserved[3];
  std::byte payload[kSlabBytes];

  static constexpr uint32_t kEmpty = 0, kWaiting = 1, kTaken = 2, kPlaced = 3;
  static constexpr size_t kMaxPieces = 2;

  bool Claim() {
    uint32_t waiting = kWaiting;
    return std::atomic_ref(state).compare_exchange_strong(waiting, kTaken,
                                                          std::memory_order_acq_rel);
  }
  void SetState(uint32_t to_state) {
    std::atomic_ref(state).store(to_state, std::memory_order_release);
  }
};
static_assert(sizeof(ReceiveSlot) == 64 + kSlabBytes);

// CqEntry::payload of a completion that has a ReceiveSlot, of the same index.
inline constexpr uint64_t kPayloadWaits = 1;

// Where the slots begin behind a ring, and what ring and slots take together.
inline size_t SlabOffset(uint32_t ring_slots, uint32_t slot_bytes) {
  return (Ring::BytesFor(ring_slots, slot_bytes) + 63) & ~size_t{63};
}
inline size_t BytesWithSendSlab(uint32_t ring_slots, uint32_t slot_bytes) {
  return SlabOffset(ring_slots, slot_bytes) + size_t{ring_slots} * kSlabBytes;
}
inline size_t BytesWithReceiveSlab(uint32_t ring_slots) {
  return SlabOffset(ring_slots, sizeof(CqEntry)) + size_t{ring_slots} * sizeof(ReceiveSlot);
}

}  // namespace rdmaemu
