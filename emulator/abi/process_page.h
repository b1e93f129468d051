// The page that one process shares with its host, in addition to its group's page.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "emulator/abi/sequence.h"

namespace rdmaemu {

// An offered event: the reply to the sequence (sequence.h) by which rdma_get_cm_event(3) fetches
// the next event of a channel. The host writes the reply before the program asks, so that the
// program needs no message. A process has one offer at a time.
struct alignas(64) EventOffer {
  // The lower bits are a state, the others the number of the offer. The host moves kNone to
  // kOffered, and kOffered back to kNone when it withdraws the offer. A thread of the program moves
  // kOffered to kTaken, copies the reply, and then stores kNone. When the host finds that an offer
  // of its own has another word, the event was fetched. A number is not used again, so that a
  // thread that is late cannot take a later offer.
  uint32_t word;
  static constexpr uint32_t kNone = 0, kOffered = 1, kTaken = 2, kStateBits = 3;

  uint32_t channel;
  uint32_t devices;  // SequenceIn::devices
  uint32_t bytes;    // of `reply`
  alignas(kStepAlignment) std::byte reply[kMaxSequenceOutBytes];

  // The host calls these. MayBegin returns false while a thread copies the reply of the last offer.
  bool MayBegin() {
    return (std::atomic_ref(word).load(std::memory_order_acquire) & kStateBits) == kNone;
  }
  // Makes an offer after MayBegin has returned true. `of_reply` has at most kMaxSequenceOutBytes.
  // Returns the offer's word.
  uint32_t Publish(uint32_t number, uint32_t of_channel, uint32_t used_devices,
                   std::span<const std::byte> of_reply) {
    // A thread may compare these two members at any time.
    std::atomic_ref(channel).store(of_channel, std::memory_order_relaxed);
    std::atomic_ref(devices).store(used_devices, std::memory_order_relaxed);
    bytes = static_cast<uint32_t>(of_reply.size());
    std::memcpy(reply, of_reply.data(), of_reply.size());
    const uint32_t offered = number * (kStateBits + 1) + kOffered;
    std::atomic_ref(word).store(offered, std::memory_order_seq_cst);
    return offered;
  }
  bool IsOffered(uint32_t offered) {
    return std::atomic_ref(word).load(std::memory_order_seq_cst) == offered;
  }
  // Returns false when the program has fetched the event.
  bool Withdraw(uint32_t offered) {
    return std::atomic_ref(word).compare_exchange_strong(offered, offered - kOffered + kNone);
  }

  // A thread of the program calls this. If the offer is of this channel and was made for these
  // devices, copies the reply to `out` and returns its size. Returns 0 for another offer or none.
  // Any number of threads may call this at once, and one of them gets the offer.
  uint32_t Take(uint32_t of_channel, uint32_t used_devices, void* out, uint32_t out_size) {
    uint32_t offered = std::atomic_ref(word).load(std::memory_order_acquire);
    if ((offered & kStateBits) != kOffered ||
        std::atomic_ref(channel).load(std::memory_order_relaxed) != of_channel ||
        std::atomic_ref(devices).load(std::memory_order_relaxed) != used_devices ||
        !std::atomic_ref(word).compare_exchange_strong(offered, offered - kOffered + kTaken)) {
      return 0;
    }
    const uint32_t size = bytes < out_size ? bytes : out_size;
    std::memcpy(out, reply, size);
    std::atomic_ref(word).store(offered - kOffered + kNone, std::memory_order_release);
    return size;
  }
};

struct alignas(64) ProcessPage {
  // The number of fork(2) calls of the program. The program increments it before each fork. From
  // this number the host computes which objects a forked child inherited, because a fork sends no
  // message to the host.
  uint32_t forks;
  EventOffer event;
};

}  // namespace rdmaemu
