// The page that one process shares with its host, in addition to its group's page.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "emulator/abi/sequence.h"

namespace rdmaemu {

// Which events are offered: those with the numbers from `first` up to `end`. The host increments
// `end` when it offers one more event, and lowers `end` when it withdraws the last ones. A thread
// of the program increments `first` to take the first one. Every withdrawal changes `generation`,
// so that a thread that is late cannot take another event than the one that it has seen.
struct OfferedRange {
  uint32_t generation = 0;
  uint16_t first = 0;
  uint16_t end = 0;

  uint16_t size() const { return static_cast<uint16_t>(end - first); }
  bool operator==(const OfferedRange&) const = default;
};

// Offered events, in order: the replies to the sequences (sequence.h) by which rdma_get_cm_event(3)
// fetches the next events of a channel. The host writes the replies before the program asks, so
// that the program needs no message. A process has offers for one channel at a time.
struct alignas(64) OfferedEvents {
  static constexpr uint16_t kSlots = 16;  // a power of two

  uint64_t range;  // an OfferedRange; all changes are atomic exchanges of the whole
  uint32_t channel;
  uint32_t devices;  // SequenceIn::devices
  struct Slot {
    uint32_t is_used;  // 0: the host may write a reply. A thread sets 0 when it has copied one.
    uint32_t bytes;    // of the reply
  };
  // The event with the number N is in the place N % kSlots.
  Slot slots[kSlots];
  alignas(kStepAlignment) std::byte replies[kSlots][kMaxSequenceOutBytes];

  OfferedRange Range() {
    return std::bit_cast<OfferedRange>(std::atomic_ref(range).load(std::memory_order_seq_cst));
  }
  // Fails, and updates `from`, if the range has changed.
  bool Change(OfferedRange& from, OfferedRange to) {
    auto expected = std::bit_cast<uint64_t>(from);
    const bool is_changed = std::atomic_ref(range).compare_exchange_strong(
        expected, std::bit_cast<uint64_t>(to), std::memory_order_seq_cst);
    if (!is_changed) from = std::bit_cast<OfferedRange>(expected);
    return is_changed;
  }

  // The host calls these. Begin needs an empty range.
  void Begin(uint32_t generation, uint32_t of_channel, uint32_t used_devices) {
    // A thread may compare these two members at any time.
    std::atomic_ref(channel).store(of_channel, std::memory_order_relaxed);
    std::atomic_ref(devices).store(used_devices, std::memory_order_relaxed);
    std::atomic_ref(range).store(std::bit_cast<uint64_t>(OfferedRange{generation, 0, 0}),
                                 std::memory_order_seq_cst);
  }
  // Returns false while a thread copies an earlier reply from this place.
  bool HasRoomFor(uint16_t number) {
    return std::atomic_ref(slots[number % kSlots].is_used).load(std::memory_order_acquire) == 0;
  }
  // Call this before `end` passes the number. `reply` has at most kMaxSequenceOutBytes.
  void Write(uint16_t number, std::span<const std::byte> reply) {
    Slot& slot = slots[number % kSlots];
    slot.bytes = static_cast<uint32_t>(reply.size());
    std::memcpy(replies[number % kSlots], reply.data(), reply.size());
    std::atomic_ref(slot.is_used).store(1, std::memory_order_relaxed);
  }
  // Whoever took the event, or withdrew it, calls this.
  void Free(uint16_t number) {
    std::atomic_ref(slots[number % kSlots].is_used).store(0, std::memory_order_release);
  }

  // A thread of the program calls this. If an event of this channel is offered for these devices,
  // copies the reply to `out` and returns its size. Otherwise returns 0. Any number of threads may
  // call this at once, and each gets another event.
  uint32_t Take(uint32_t of_channel, uint32_t used_devices, void* out, uint32_t out_size) {
    OfferedRange seen = Range();
    do {
      if (seen.size() == 0 || seen.size() > kSlots ||
          std::atomic_ref(channel).load(std::memory_order_relaxed) != of_channel ||
          std::atomic_ref(devices).load(std::memory_order_relaxed) != used_devices) {
        return 0;
      }
    } while (!Change(seen, {seen.generation, static_cast<uint16_t>(seen.first + 1), seen.end}));
    const uint32_t bytes = slots[seen.first % kSlots].bytes;
    const uint32_t size = bytes < out_size ? bytes : out_size;
    std::memcpy(out, replies[seen.first % kSlots], size);
    Free(seen.first);
    return size;
  }
};

struct alignas(64) ProcessPage {
  // The number of fork(2) calls of the program. The program increments it before each fork. From
  // this number the host computes which objects a forked child inherited, because a fork sends no
  // message to the host.
  uint32_t forks;
  OfferedEvents offers;

  // The host calls this before it shares the page, whose bytes may have any value.
  void Init() {
    forks = 0;
    offers.range = 0;
    std::memset(offers.slots, 0, sizeof offers.slots);
  }
};

}  // namespace rdmaemu
