// Lanes: a program puts small SENDs of a queue pair into memory that it shares with the peer's
// program. That program takes them when it polls for completions, and places each in its next
// posted receive. No host takes part.
//
// A host opens a lane under a new number. The receiver's program then says how many messages it
// has receives for (`room`). The sender's program adds messages, and has completed each SEND that
// it added. Either host can close the lane: no message is added after that. The receiver's host
// then takes the messages that the receiver's program has not taken, and handles them as if they
// had arrived on the wire.
//
// Two programs and their hosts write here, and trust nothing that they read. A false number changes
// only this connection.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/abi/numbered.h"
#include "emulator/abi/permit.h"
#include "emulator/base/uapi.h"

namespace rdmaemu {

// The longest message, in bytes. The shared memory beside the queues has the same limit (slab.h).
inline constexpr uint32_t kMaxLaneBytes = 256;

struct alignas(64) LaneMessage {
  static constexpr uint32_t kHasImmediate = 1, kIsSolicited = 2;

  uint32_t length;  // bytes
  uint32_t flags;
  uint32_t immediate;  // as in ibv_send_wr
  uint32_t reserved;
  // Of all messages since the lane was opened, with this one: the bytes of payload, and those of
  // padding and immediate data.
  uint64_t bytes, extra_bytes;
  std::byte payload[kMaxLaneBytes];
};

// A number of messages, and the number of the opening that counts them.
struct LaneCount {
  static constexpr uint32_t kClosed = uint32_t{1} << 31;  // in `number`

  uint32_t number, count;

  static LaneCount Of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }
  uint64_t word() const { return uint64_t{number} << 32 | count; }
};

struct SendLane {
  static constexpr uint32_t kMessages = 64;  // a power of two

  // The receiver's host writes these for the present opening: the PSN of the first message, and how
  // many messages may be in the lane that are not placed.
  uint32_t psn, most;
  // Messages that were added. Its number has kClosed when the lane is closed. The sender's program
  // adds, and a host opens and closes.
  alignas(64) uint64_t added;
  // The receiver's program writes these: how many messages may be added, and how long each may be.
  alignas(64) uint64_t room;
  uint32_t room_bytes;
  // Messages that were taken, and how many of them are in their receives. The receiver's program or
  // host takes them, whoever moves `taken` first.
  alignas(64) uint64_t taken;
  uint32_t placed;
  LaneMessage messages[kMessages];

  LaneCount Added() {
    return LaneCount::Of(std::atomic_ref(added).load(std::memory_order_acquire));
  }
  LaneCount Taken() {
    return LaneCount::Of(std::atomic_ref(taken).load(std::memory_order_acquire));
  }
  uint32_t Placed() { return std::atomic_ref(placed).load(std::memory_order_acquire); }
  LaneMessage& MessageAt(uint32_t index) { return messages[index % kMessages]; }

  // ---- hosts

  // Opens the lane under another number than the last one. Only one thread opens it, while it is
  // closed and IsQuiet.
  void Open(uint32_t number, uint32_t first_psn, uint32_t most_messages) {
    std::atomic_ref(psn).store(first_psn, std::memory_order_relaxed);
    std::atomic_ref(most).store(std::min(most_messages, kMessages), std::memory_order_relaxed);
    const uint64_t none = LaneCount{number, 0}.word();
    std::atomic_ref(room).store(none, std::memory_order_relaxed);
    std::atomic_ref(placed).store(0, std::memory_order_relaxed);
    std::atomic_ref(taken).store(none, std::memory_order_relaxed);
    std::atomic_ref(added).store(none, std::memory_order_release);
  }
  uint32_t Psn() { return std::atomic_ref(psn).load(std::memory_order_relaxed); }
  // Closes the lane if it is open under this number. Returns how many messages were added.
  uint32_t Close(uint32_t number) {
    std::atomic_ref word(added);
    uint64_t now = word.load(std::memory_order_acquire);
    while (LaneCount::Of(now).number == number) {
      const LaneCount closed{number | LaneCount::kClosed, LaneCount::Of(now).count};
      if (word.compare_exchange_weak(now, closed.word(), std::memory_order_acq_rel)) break;
    }
    return CountOf(number);
  }
  // Returns how many messages were added under this number. 0 if the lane has another number.
  uint32_t CountOf(uint32_t number) {
    const LaneCount now = Added();
    return (now.number & ~LaneCount::kClosed) == number ? now.count : 0;
  }
  // Takes all messages that were added under this number and not taken. Returns how many were taken
  // before.
  uint32_t TakeRest(uint32_t number) {
    const uint32_t all = CountOf(number);
    std::atomic_ref word(taken);
    uint64_t now = word.load(std::memory_order_acquire);
    for (;;) {
      const LaneCount before = LaneCount::Of(now);
      if (before.number != number || all - before.count > kMessages) return all;
      if (word.compare_exchange_weak(now, LaneCount{number, all}.word())) return before.count;
    }
  }
  // Returns true when all taken messages are placed.
  bool IsQuiet() { return Placed() == Taken().count; }

  // ---- the sender's program, one thread at a time

  // Returns true if a message of `bytes` can be added as number `count`.
  bool HasRoom(uint32_t number, uint32_t count, uint64_t bytes) {
    const LaneCount may = LaneCount::Of(std::atomic_ref(room).load(std::memory_order_acquire));
    return may.number == number && static_cast<int32_t>(may.count - count) > 0 &&
           bytes <= std::atomic_ref(room_bytes).load(std::memory_order_relaxed) &&
           bytes <= kMaxLaneBytes &&
           count - Placed() <
               std::min(std::atomic_ref(most).load(std::memory_order_relaxed), kMessages);
  }
  // Adds the message that the caller has written to MessageAt(count). Returns false if the lane was
  // closed meanwhile.
  bool Add(uint32_t number, uint32_t count) {
    uint64_t before = LaneCount{number, count}.word();
    return std::atomic_ref(added).compare_exchange_strong(
        before, LaneCount{number, count + 1}.word(), std::memory_order_seq_cst);
  }

  // ---- the receiver's program

  void SetRoom(uint32_t number, uint32_t count, uint32_t bytes) {
    std::atomic_ref(room_bytes).store(bytes, std::memory_order_relaxed);
    std::atomic_ref(room).store(LaneCount{number, count}.word(), std::memory_order_release);
  }
  // Takes message `count`, which was added. Returns false if another one has taken it. The caller
  // then places it, and calls HavePlaced.
  bool Take(uint32_t number, uint32_t count) {
    uint64_t before = LaneCount{number, count}.word();
    return std::atomic_ref(taken).compare_exchange_strong(
        before, LaneCount{number, count + 1}.word(), std::memory_order_acq_rel);
  }
  void HavePlaced(uint32_t messages_more) {
    std::atomic_ref(placed).fetch_add(messages_more, std::memory_order_acq_rel);
  }
};

// The host describes an open lane to the receiver's program. A reader compares `number` before and
// after it has read the other members.
struct LaneOffer {
  uint32_t number;          // of the opening; 0: none
  uint32_t lane;            // which lane; a program maps each one once
  uint32_t receive_index;   // in the receive ring, of the receive for the first message
  PermittedRegion region;   // of the receives' memory
  ib_uverbs_wc completion;  // what the completions have in common

  // Publishes an offer, or ends the published one (`to.number` is 0).
  void Publish(const LaneOffer& to) { PublishNumbered(*this, to); }
  uint32_t Number() { return std::atomic_ref(number).load(std::memory_order_acquire); }
  // Returns the offer. Its number is 0 if there is none.
  LaneOffer Read() { return ReadNumbered(*this); }
};

}  // namespace rdmaemu
