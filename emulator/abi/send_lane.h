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
// If the receiver's CQ is armed, the message may have to raise an event. While a lane is open, the
// arming is in the lane (LaneArm), so that the sender's program can raise the event itself: it
// records the event in the lane, and adds 1 to the counter of the receiver's channel.
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
  uint32_t immediate;     // as in ibv_send_wr
  uint32_t acknowledged;  // SendLane::acknowledged, when the message was added
  // Of all messages since the lane was opened, with this one: the bytes of payload, and those of
  // padding and immediate data.
  uint64_t bytes, extra_bytes;
  uint64_t added_ns;  // CLOCK_MONOTONIC, before the message was added
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

// The arming of the receiver's CQ while its lane is open, and the events that were raised in the
// lane and are not taken. All in one word, so that an event is recorded when the queue is disarmed.
struct LaneArm {
  static constexpr uint32_t kNumberMask = 0xfff, kAddedMask = 0xffffff, kTimesMask = 0x1ff;
  static constexpr uint32_t kMostRaised = 0xffff;

  uint32_t number;  // of the opening; the lowest bits
  uint32_t added;   // messages in the lane when the program armed the queue; the lowest bits
  uint32_t kind;    // as in ArmedWord (ring.h)
  uint32_t takes;   // as in ArmedWord
  uint32_t times;   // counts the armings, so that each one has another word than the last one
  uint32_t raised;

  static LaneArm Of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 52) & kNumberMask,
            static_cast<uint32_t>(word >> 28) & kAddedMask,
            static_cast<uint32_t>(word >> 26) & 3,
            static_cast<uint32_t>(word >> 25) & 1,
            static_cast<uint32_t>(word >> 16) & kTimesMask,
            static_cast<uint32_t>(word) & kMostRaised};
  }
  uint64_t word() const {
    return uint64_t{number & kNumberMask} << 52 | uint64_t{added & kAddedMask} << 28 |
           uint64_t{kind & 3} << 26 | uint64_t{takes & 1} << 25 |
           uint64_t{times & kTimesMask} << 16 | (raised & kMostRaised);
  }
  bool IsOf(uint32_t opening) const { return number == (opening & kNumberMask); }
  // Returns true if a message or completion of this kind raises the event.
  bool Asks(bool is_solicited) const { return kind == 2 || (kind == 1 && is_solicited); }
  // Returns true if message `count` - 1 is the last one before the arming.
  bool IsAfter(uint32_t count) const { return added == (count & kAddedMask); }
};

// Messages of a lane that were added and not taken.
struct LaneWaiting {
  uint32_t first, count;
};

struct SendLane {
  static constexpr uint32_t kMessages = 64;  // a power of two

  // The receiver's host writes these for the present opening: the PSN of the first message, and how
  // many messages may be in the lane that are not placed.
  uint32_t psn, most;
  // The receiver's host writes its descriptor of the counter of the CQ's channel. -1: none.
  int32_t counter_fd;
  // The receiver's program writes 1 when it arms the CQ. A sender that cannot raise events then has
  // its host close the lane.
  uint32_t uses_events;
  // The sender's host writes this before its program gets completions: the PSN after the last
  // request of the other direction that it has executed. So a message in the lane acknowledges
  // these requests. Bit 31: valid.
  alignas(64) uint32_t acknowledged;
  // The receiver's host writes this: the PSN before which its QP's requests have completed, and the
  // program can poll that. No message is added before these are the acknowledged ones: a program
  // may await the completion of its request, and then the answer.
  uint32_t completed;
  static constexpr uint32_t kAcknowledges = uint32_t{1} << 31;
  static constexpr uint32_t kPsnHalf = uint32_t{1} << 23;
  alignas(64) uint64_t armed;  // a LaneArm
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
  // Returns those of the opening with this number. None if the words are inconsistent.
  LaneWaiting Waiting(uint32_t number) {
    const LaneCount all = Added(), before = Taken();
    if ((all.number & ~LaneCount::kClosed) != number || before.number != number ||
        all.count - before.count > kMessages) {
      return {};
    }
    return {before.count, all.count - before.count};
  }

  // ---- hosts

  // Opens the lane under another number than the last one. Only one thread opens it, while it is
  // closed and IsQuiet. No message is added before Admit.
  void Open(uint32_t number, uint32_t first_psn) {
    std::atomic_ref(psn).store(first_psn, std::memory_order_relaxed);
    std::atomic_ref(most).store(0, std::memory_order_relaxed);
    // A program could write any arming. That of an earlier opening has been moved.
    (void)Disarm([](const LaneArm&) { return true; }, 0);
    const uint64_t none = LaneCount{number, 0}.word();
    std::atomic_ref(room).store(none, std::memory_order_relaxed);
    std::atomic_ref(placed).store(0, std::memory_order_relaxed);
    std::atomic_ref(taken).store(none, std::memory_order_relaxed);
    std::atomic_ref(added).store(none, std::memory_order_release);
  }
  // Lets the sender's program add messages, while fewer than `most_messages` are not placed.
  void Admit(uint32_t most_messages) {
    std::atomic_ref(most).store(std::min(most_messages, kMessages), std::memory_order_release);
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
  void SetCounterFd(int32_t fd) {
    std::atomic_ref(counter_fd).store(fd, std::memory_order_relaxed);
  }
  int32_t CounterFd() { return std::atomic_ref(counter_fd).load(std::memory_order_relaxed); }
  void SetAcknowledged(uint32_t psn_after) {
    std::atomic_ref(acknowledged).store(psn_after | kAcknowledges, std::memory_order_release);
  }
  uint32_t Acknowledged() { return std::atomic_ref(acknowledged).load(std::memory_order_acquire); }
  void SetCompleted(uint32_t psn) {
    std::atomic_ref(completed).store(psn, std::memory_order_release);
  }
  // Returns true if the receiver's QP has completed all requests that this QP has executed.
  bool HasCompleted() {
    const uint32_t executed = Acknowledged();
    const uint32_t done = std::atomic_ref(completed).load(std::memory_order_acquire);
    return (executed & kAcknowledges) == 0 || ((done - executed) & kPsnHalf) == 0;
  }
  // Returns true when all taken messages are placed.
  bool IsQuiet() { return Placed() == Taken().count; }

  // ---- events; any thread of a program or host

  LaneArm Armed() { return LaneArm::Of(std::atomic_ref(armed).load(std::memory_order_seq_cst)); }
  // Disarms the queue if it is armed and `may` returns true, and records `events` events. Returns
  // the arming. Its kind is 0 if there was none, or if `may` has returned false.
  template <class May>
  LaneArm Disarm(const May& may, uint32_t events) {
    std::atomic_ref word(armed);
    uint64_t now = word.load(std::memory_order_seq_cst);
    for (;;) {
      LaneArm was = LaneArm::Of(now), then = was;
      if (was.kind == 0 || !may(was)) return {};
      then.kind = 0;
      then.raised = was.raised + events;
      if (word.compare_exchange_weak(now, then.word(), std::memory_order_seq_cst)) return was;
    }
  }
  // Arms the queue. If it is armed for at least these completions, only the word changes. Returns
  // the word.
  uint64_t Arm(uint32_t number, uint32_t kind, uint32_t takes) {
    std::atomic_ref word(armed);
    uint64_t now = word.load(std::memory_order_seq_cst);
    for (;;) {
      LaneArm next = LaneArm::Of(now);
      next.times++;
      if (next.kind < kind || !next.IsOf(number)) {
        next = {number, Added().count, kind, takes, next.times, next.raised};
      }
      if (word.compare_exchange_weak(now, next.word(), std::memory_order_seq_cst)) {
        return next.word();
      }
    }
  }
  // Arms the queue for fewer completions, if nobody has changed the word since Arm.
  void Weaken(uint64_t arm_word, uint32_t kind) {
    LaneArm next = LaneArm::Of(arm_word);
    next.kind = kind;
    (void)std::atomic_ref(armed).compare_exchange_strong(arm_word, next.word(),
                                                         std::memory_order_seq_cst);
  }
  // Takes one recorded event. Returns false if there is none.
  bool TakeRaised() {
    std::atomic_ref word(armed);
    uint64_t now = word.load(std::memory_order_seq_cst);
    for (;;) {
      LaneArm next = LaneArm::Of(now);
      if (next.raised == 0) return false;
      next.raised--;
      if (word.compare_exchange_weak(now, next.word(), std::memory_order_seq_cst)) return true;
    }
  }

  // Returns true if the last one of `count` messages should have raised the event of this arming,
  // but the thread that added the message has not looked at the arming.
  bool OwesEvent(const LaneArm& arm, uint32_t count) {
    if (arm.kind == 0 || count == 0 || arm.IsAfter(count)) return false;
    const uint32_t last =
        std::atomic_ref(MessageAt(count - 1).flags).load(std::memory_order_relaxed);
    return arm.Asks((last & LaneMessage::kIsSolicited) != 0);
  }

  // ---- the sender's program, one thread at a time

  // Returns how many messages the lane can have.
  uint32_t Most() {
    return std::min(std::atomic_ref(most).load(std::memory_order_acquire), kMessages);
  }

  // Returns true if the receiver's CQ has a channel.
  bool HasEvents() { return CounterFd() >= 0; }
  // Call it after Add, too.
  bool UsesEvents() { return std::atomic_ref(uses_events).load(std::memory_order_seq_cst) != 0; }
  // Call it after each Add. `count` is what the lane has then. Returns true if the caller must add
  // 1 to the counter.
  bool RecordEvent(uint32_t number, uint32_t count, bool is_solicited) {
    return Disarm(
               [&](const LaneArm& arm) {
                 return arm.IsOf(number) && arm.Asks(is_solicited) && !arm.IsAfter(count) &&
                        arm.raised < LaneArm::kMostRaised;
               },
               1)
               .kind != 0;
  }

  // Returns true if `messages` of at most `bytes` each fit into the empty lane.
  bool MayFit(uint64_t bytes, uint32_t messages) {
    return messages <= Most() && bytes <= kMaxLaneBytes &&
           bytes <= std::atomic_ref(room_bytes).load(std::memory_order_relaxed);
  }
  // Returns true if they can be added from number `count` on.
  bool HasRoom(uint32_t number, uint32_t count, uint64_t bytes, uint32_t messages = 1) {
    const LaneCount may = LaneCount::Of(std::atomic_ref(room).load(std::memory_order_acquire));
    const uint32_t in_lane = count - Placed();
    return may.number == number && static_cast<int32_t>(may.count - count - messages) >= 0 &&
           MayFit(bytes, messages) && in_lane <= kMessages && in_lane + messages <= Most();
  }
  // Adds the messages that the caller has written to MessageAt(count) and behind. Returns false if
  // the lane was closed meanwhile.
  bool Add(uint32_t number, uint32_t count, uint32_t messages = 1) {
    uint64_t before = LaneCount{number, count}.word();
    return std::atomic_ref(added).compare_exchange_strong(
        before, LaneCount{number, count + messages}.word(), std::memory_order_seq_cst);
  }

  // ---- the receiver's program

  void SetUsesEvents(bool uses) {
    std::atomic_ref(uses_events).store(uses ? 1 : 0, std::memory_order_seq_cst);
  }
  void SetRoom(uint32_t number, uint32_t count, uint32_t bytes) {
    std::atomic_ref(room_bytes).store(bytes, std::memory_order_relaxed);
    std::atomic_ref(room).store(LaneCount{number, count}.word(), std::memory_order_release);
  }
  // Takes messages from number `count` on, which were added. Returns false if another one has taken
  // the first one. The caller then places them, and calls HavePlaced.
  bool Take(uint32_t number, uint32_t count, uint32_t messages = 1) {
    uint64_t before = LaneCount{number, count}.word();
    return std::atomic_ref(taken).compare_exchange_strong(
        before, LaneCount{number, count + messages}.word(), std::memory_order_acq_rel);
  }
  void HavePlaced(uint32_t messages_more) {
    std::atomic_ref(placed).fetch_add(messages_more, std::memory_order_acq_rel);
  }
};

// The host describes an open lane to the receiver's program. A reader compares `number` before and
// after it has read the other members.
struct LaneOffer {
  uint32_t number;          // of the opening; 0: none
  uint32_t takes_arming;    // 1: the arming of the CQ is in this lane (cq_events.h)
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
