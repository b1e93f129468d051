// Small payloads in shared memory, so that a payload needs no system call. The library copies a
// send's payload behind its request (send_entry.h) when the program posts. A real device may also
// read the payload at that time. The host copies a received payload into a slot beside the
// completion queue. The library copies that payload to its destination when the program polls the
// completion.
//
// Both sides copy. A program that overwrites such a payload changes only its own payloads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/abi/ring.h"

namespace rdmaemu {

// The largest such payload, in bytes. Above about this size, one copy between the processes is
// cheaper than two copies through shared memory.
inline constexpr uint32_t kSlabBytes = 256;

// SendEntry::state of an entry with its payload behind its SGEs. The host checks the keys of the
// SGEs, and does not read their memory.
inline constexpr uint32_t kPayloadTaken = 1;

// A destination of a received payload that is still in its slot.
struct ReceivePiece {
  uint64_t address, length;  // in the program's memory; bytes
};
struct alignas(64) ReceiveSlot {
  // The side that exchanges kWaiting for kTaken moves the payload. The program does so when it
  // polls. The host does so before it accesses the same memory otherwise.
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

// CqEntry::payload of a completion that has a payload in the ReceiveSlot of the same index.
inline constexpr uint64_t kPayloadWaits = 1;

// Returns the offset of the slots behind a ring, in bytes. The next function returns ring plus
// slots.
inline size_t SlabOffset(uint32_t ring_slots, uint32_t slot_bytes) {
  return (Ring::BytesFor(ring_slots, slot_bytes) + 63) & ~size_t{63};
}
inline size_t BytesWithReceiveSlab(uint32_t ring_slots) {
  return SlabOffset(ring_slots, sizeof(CqEntry)) + size_t{ring_slots} * sizeof(ReceiveSlot);
}

}  // namespace rdmaemu
