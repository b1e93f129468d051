// Work queues and completion queues in memory that a program and its host share. The layout is
// rdma_rxe's: rxe_queue_buf with rxe_recv_wqe and ib_uverbs_wc (rdma_user_rxe.h). Send queues have
// entries of their own (send_entry.h). A ring has one producer and one consumer. Each of them masks
// an index when it stores the index. A ring of 2^n slots holds 2^n - 1 entries.
//
// Each side treats the other side as hostile. Each side keeps the sizes in its own memory, never
// reads them from the ring, and masks an index before use.
//
// The host numbers its rings, in memory that rdma_rxe leaves unused. A forked child keeps the
// queues that its parent has destroyed, and the host then uses their memory again. By the number
// the child sees that the ring is no longer the one that it knows.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "emulator/abi/copy_jobs.h"
#include "emulator/abi/host_turn.h"
#include "emulator/abi/permit.h"
#include "emulator/abi/prefetch.h"
#include "emulator/abi/program_place.h"
#include "emulator/abi/send_lane.h"
#include "emulator/base/uapi.h"

namespace rdmaemu {

// One entry of a completion queue. A receive's wr_id and fields have the names of ibv_wc.
struct CqEntry {
  ib_uverbs_wc wc;
  uint64_t timestamp_ns;  // host time, for ibv_wc_read_completion_ts
  uint64_t payload;       // kPayloadWaits (slab.h), or 0
};
static_assert(sizeof(CqEntry) == 64);

// The control block before the ring of a completion queue.
struct alignas(64) CqControl {
  // An ArmedWord. The program writes the word after it drained the queue. The host exchanges the
  // word with kCqUnarmed when it adds the completion that raises the event. Both sides put a fence
  // between their accesses to this word and to the ring.
  uint32_t armed;
  uint32_t overrun;  // the host sets this when the queue lost a completion
  // The program sets this for good when it reads the times of completions. The queue then gets no
  // completions by lanes (send_lane.h).
  uint32_t refuses_lanes;
  // The program sets this for good before it arms the queue for the first time.
  uint32_t uses_events;
  // The completions of requests that the program executed itself (permit.h). They precede all
  // entries of the ring. How many were put here, and how many were taken:
  static constexpr uint32_t kMostExecuted = 64;  // a power of two
  uint32_t executed_puts, executed_takes;
  CqEntry executed[kMostExecuted];

  uint32_t CountExecuted() {
    const uint32_t takes = std::atomic_ref(executed_takes).load(std::memory_order_acquire);
    return std::min(std::atomic_ref(executed_puts).load(std::memory_order_acquire) - takes,
                    kMostExecuted);
  }
  bool HasExecuted() { return CountExecuted() != 0; }
  // Takes the first of these completions. Returns false if there is none. Forked processes share
  // the queue, and only one of them gets a completion.
  bool TakeExecuted(CqEntry& out) {
    std::atomic_ref takes(executed_takes);
    uint32_t taken = takes.load(std::memory_order_acquire);
    do {
      if (std::atomic_ref(executed_puts).load(std::memory_order_acquire) == taken) return false;
      out = executed[taken % kMostExecuted];
    } while (!takes.compare_exchange_weak(taken, taken + 1, std::memory_order_acq_rel));
    return true;
  }
  // There must be fewer than kMostExecuted. One thread at a time.
  void PutExecuted(const CqEntry& entry) {
    std::atomic_ref all(executed_puts);
    const uint32_t before = all.load(std::memory_order_relaxed);
    executed[before % kMostExecuted] = entry;
    // Another thread may arm the queue before it can see the completion. DisarmBeforeTake then sees
    // that.
    all.store(before + 1, std::memory_order_seq_cst);
  }
  // Removes the completions that `is_it` selects. The caller keeps other threads from taking any.
  template <class Predicate>
  void RemoveExecuted(const Predicate& is_it) {
    const uint32_t first = std::atomic_ref(executed_takes).load(std::memory_order_relaxed);
    const uint32_t end = std::atomic_ref(executed_puts).load(std::memory_order_acquire);
    if (end - first > kMostExecuted) return;
    uint32_t to = end;
    for (uint32_t from = end; from != first;) {
      const CqEntry& entry = executed[--from % kMostExecuted];
      if (is_it(entry)) continue;
      if (--to != from) executed[to % kMostExecuted] = entry;
    }
    std::atomic_ref(executed_takes).store(to, std::memory_order_release);
  }
  // Disarms a queue that is armed for any completion. `lane` has the arming if its kind is
  // kCqArmedInLane. Returns true if the caller must raise the event.
  bool DisarmAny(SendLane* lane = nullptr);
  // The same, unless the queue was armed after `takes` had changed: a thread that has taken the
  // completion has then armed the queue for the next one.
  bool DisarmBeforeTake(uint32_t takes, SendLane* lane = nullptr);
};
inline constexpr uint32_t kCqUnarmed = 0;
inline constexpr uint32_t kCqArmedSolicited = 1;
inline constexpr uint32_t kCqArmedAny = 2;
// The queue has a lane, and the lane says whether the queue is armed (SendLane::armed). The
// programs move an arming into the lane, and the host moves it back when it closes the lane.
inline constexpr uint32_t kCqArmedInLane = 3;
inline constexpr uint32_t kCqArmedMask = 3;
// Means the consumer index of another ring. No ring has this many slots.
inline constexpr uint32_t kCqArmedElsewhere = UINT32_MAX >> 3;

// Encodes which completions raise the event, the lowest bit of `executed_takes`, and the ring's
// consumer index at the time of arming. By this index the host detects that the program had already
// polled the newest completion. That completion raises no event. A ConnectX device gets the index
// with its arm doorbell.
inline constexpr uint32_t ArmedWord(uint32_t kind, uint32_t consumer, uint32_t takes = 0) {
  return kind | (takes & 1) << 2 | consumer << 3;
}
inline constexpr uint32_t ArmedKind(uint32_t word) { return word & kCqArmedMask; }
inline constexpr uint32_t ArmedTakes(uint32_t word) { return word >> 2 & 1; }
inline constexpr uint32_t ArmedConsumer(uint32_t word) { return word >> 3; }

inline bool CqControl::DisarmAny(SendLane* lane) {
  std::atomic_ref word(armed);
  uint32_t now = word.load(std::memory_order_seq_cst);
  // The host or another program may disarm it meanwhile. Only one of them raises the event.
  while (ArmedKind(now) == kCqArmedAny) {
    if (word.compare_exchange_weak(now, kCqUnarmed)) return true;
  }
  return ArmedKind(now) == kCqArmedInLane && lane != nullptr &&
         lane->Disarm([](const LaneArm& arm) { return arm.kind == kCqArmedAny; }, 0).kind != 0;
}

inline bool CqControl::DisarmBeforeTake(uint32_t takes, SendLane* lane) {
  std::atomic_ref word(armed);
  uint32_t now = word.load(std::memory_order_seq_cst);
  while (ArmedKind(now) == kCqArmedAny && ArmedTakes(now) == (takes & 1)) {
    if (word.compare_exchange_weak(now, kCqUnarmed)) return true;
  }
  const auto is_before = [takes](const LaneArm& arm) {
    return arm.kind == kCqArmedAny && arm.takes == (takes & 1);
  };
  return ArmedKind(now) == kCqArmedInLane && lane != nullptr &&
         lane->Disarm(is_before, 0).kind != 0;
}

// The program arms the queue. Follows rxe_req_notify_cq: a queue that is armed for any completion
// stays armed for any. The program looks at the ring once more after this call.
inline void ArmCq(CqControl& control, uint32_t kind, uint32_t consumer) {
  std::atomic_ref armed(control.armed);
  const uint32_t takes = std::atomic_ref(control.executed_takes).load(std::memory_order_relaxed);
  const uint32_t word = ArmedWord(kind, consumer, takes);
  uint32_t now = armed.load();
  while (ArmedKind(now) < kind && !armed.compare_exchange_weak(now, word)) {
  }
  // Its last look at the ring must not precede the store to `armed`. A read-modify-write acts as
  // the fence, and TSan understands it.
  armed.fetch_or(0, std::memory_order_seq_cst);
}

// The control block before a send queue's ring. The host writes it, the program reads it, except
// for `executed`.
struct alignas(64) QpControl {
  uint32_t state;  // current ibv_qp_state; ibv_post_send refuses RESET, INIT and RTR
  // While `lane` is offered: the send ring's index behind the last request that has completed, and
  // whose completion the program can poll.
  uint32_t completed;
  alignas(64) Permit permit;
  alignas(64) Executed executed;  // the program writes it
  alignas(64) LaneOffer lane;     // for the SENDs that arrive
};

// A range of a shared memory segment. The program maps each segment once (kMapSegment).
struct SharedSpan {
  uint32_t segment;  // SegmentId
  uint32_t offset;   // bytes
  uint32_t length;   // bytes; 0: none
  uint32_t reserved;
};

// One pending completion event in a channel's ring. Any thread of any process that took one event
// from the channel's counter may consume an entry. Consumers advance consumer_index by
// compare-and-swap.
struct ChannelEntry {
  uint64_t cq_cookie;  // 0: the CQ was destroyed; take another event from the counter
};

// The part of an event that a program asks its host to raise (kRaiseCq).
enum class EventPart : uint32_t {
  kAll,    // an entry in the channel's ring, and the counter
  kCount,  // the counter; the event is in ChannelControl
  kEntry,  // an entry; the counter has been raised for an event in a lane that ends
};

// The control block before the ring of a completion channel. It holds the event of one request that
// a program executed itself (permit.h), because only the host adds events to the ring. Any thread
// may call the functions.
struct alignas(64) ChannelControl {
  enum State : uint32_t { kNone, kReserved, kFull, kTaken };
  uint32_t state;
  uint64_t cq_cookie;

  // Returns false if the place is in use. Else the caller must call Put.
  bool Reserve() {
    uint32_t none = kNone;
    return std::atomic_ref(state).compare_exchange_strong(none, kReserved);
  }
  // After Put, the caller adds 1 to the channel's counter.
  void Put(uint64_t cookie) {
    cq_cookie = cookie;
    std::atomic_ref(state).store(kFull, std::memory_order_seq_cst);
  }
  bool HasEvent() { return std::atomic_ref(state).load(std::memory_order_acquire) == kFull; }
  // Takes the event. Returns false if there is none.
  bool Take(uint64_t& cookie) {
    uint32_t full = kFull;
    if (!std::atomic_ref(state).compare_exchange_strong(full, kTaken)) return false;
    cookie = cq_cookie;
    std::atomic_ref(state).store(kNone, std::memory_order_release);
    return true;
  }
};

// Memory that a group of processes shares with its host in addition to the queues. The doorbell of
// a send queue is one bit of `queues`. `summary` has one bit per word of `queues`.
struct DoorbellPage {
  static constexpr uint32_t kMaxQueues = 65536;
  // The host executes no sequences (sequence.h), because a fault rule may select each call.
  static constexpr uint32_t kNoSequences = uint32_t{1} << 31;
  // The host stores 1 before it sleeps. A program that rings a doorbell and then reads 1 exchanges
  // the 1 with 0 and writes the doorbell eventfd.
  alignas(64) uint32_t host_asleep;
  // The host writes this, rarely. Each bit is a call without a message (a post or a poll). The
  // program must ask the host before such a call (AskIn). kNoSequences is a further bit.
  alignas(64) uint32_t watched_calls;
  // The host writes this before a program gets the page. 1: the library must not copy a payload
  // when a program posts.
  uint32_t no_payload_shortcuts;
  HostTurn turn;
  ProgramPlace place;
  alignas(64) uint64_t summary[kMaxQueues / 64 / 64];
  alignas(64) uint64_t queues[kMaxQueues / 64];
  JobPage jobs;
};

// Returns true when the host sleeps and the caller must write the doorbell eventfd. Call it after
// adding work for the host.
inline bool MustWakeHost(DoorbellPage& page) {
  std::atomic_ref asleep(page.host_asleep);
  return asleep.load(std::memory_order_seq_cst) != 0 && asleep.exchange(0) != 0;
}

// Rings a doorbell. Returns true when the host sleeps and the caller must write the eventfd.
inline bool RingDoorbell(DoorbellPage& page, uint32_t slot) {
  const uint32_t word = slot / 64;
  const uint64_t bit = uint64_t{1} << (slot % 64);
  const uint64_t before =
      std::atomic_ref(page.queues[word]).fetch_or(bit, std::memory_order_seq_cst);
  // The thread that set the first bit of a word also sets the bit in `summary`.
  if (before == 0) {
    std::atomic_ref(page.summary[word / 64])
        .fetch_or(uint64_t{1} << (word % 64), std::memory_order_seq_cst);
  }
  return MustWakeHost(page);
}

// A view of one ring, for either side. Not thread-safe: the caller holds the queue's lock.
class Ring {
 public:
  Ring() = default;
  // `slots` and `slot_bytes` are powers of two. `memory` is BytesFor() long and 64-byte aligned.
  Ring(std::byte* memory, uint32_t slots, uint32_t slot_bytes)
      : buffer_(reinterpret_cast<rxe_queue_buf*>(memory)),
        mask_(slots - 1),
        shift_(static_cast<uint32_t>(std::countr_zero(slot_bytes))) {}

  static size_t BytesFor(uint32_t slots, uint32_t slot_bytes) {
    return sizeof(rxe_queue_buf) + size_t{slots} * slot_bytes;
  }
  // Returns the slots for a queue that must hold `entries`. The rounding is that of rxe_queue_init:
  // 4 entries need 8 slots, of which 7 are usable.
  static uint32_t SlotsFor(uint32_t entries) { return std::bit_ceil(entries + 1); }

  // Writes the sizes, empty indices and a number that is not 0. The host calls it once.
  void Format(uint32_t number) {
    std::memset(static_cast<void*>(buffer_), 0, sizeof *buffer_);
    buffer_->log2_elem_size = shift_;
    buffer_->index_mask = mask_;
    SetNumbers(number);
  }
  // Discards all entries. The host calls it.
  void Clear() {
    SetConsumer(0);
    SetProducer(0);
  }
  // The host calls it before it uses the memory for something else. May be called for no ring.
  void End() {
    if (buffer_ != nullptr) SetNumbers(kEnded);
  }

  // The program calls it once, when it gets the ring.
  void RememberNumber() { number_ = std::atomic_ref(ProducersNumber()).load(); }
  // Return false if the memory no longer belongs to the ring of RememberNumber. Each reads a cache
  // line that its caller needs next: a producer's or a consumer's.
  bool IsProducersStill() const { return Is(ProducersNumber()); }
  bool IsConsumersStill() const { return Is(ConsumersNumber()); }

  explicit operator bool() const { return buffer_ != nullptr; }
  uint32_t usable() const { return mask_; }
  uint32_t slot_bytes() const { return 1u << shift_; }

  uint32_t Producer() const { return Load(buffer_->producer_index); }
  uint32_t Consumer() const { return Load(buffer_->consumer_index); }
  uint32_t Count() const { return (Producer() - Consumer()) & mask_; }
  bool Empty() const { return Producer() == Consumer(); }
  bool Full() const { return Count() == mask_; }
  // Moves the consumer from `from` to `to`. Returns false when the consumer is no longer at `from`.
  // For rings with several consumers.
  bool MoveConsumer(uint32_t from, uint32_t to) {
    return std::atomic_ref(buffer_->consumer_index).compare_exchange_strong(from, to & mask_);
  }
  uint32_t Next(uint32_t index) const { return (index + 1) & mask_; }
  uint32_t Previous(uint32_t index) const { return (index - 1) & mask_; }
  uint32_t Distance(uint32_t from, uint32_t to) const { return (to - from) & mask_; }
  void SetProducer(uint32_t index) { Store(buffer_->producer_index, index); }
  void SetConsumer(uint32_t index) { Store(buffer_->consumer_index, index); }

  std::byte* Slot(uint32_t index) const {
    return reinterpret_cast<std::byte*>(buffer_->data) + (size_t{index & mask_} << shift_);
  }
  // Call these for the next slot, which the other side has used last.
  void PrepareToWrite(uint32_t index) const { PrefetchToWrite(Slot(index)); }
  void PrepareToRead(uint32_t index) const {
    const std::byte* const slot = Slot(index);
    for (uint32_t at = 0; at < slot_bytes() && at < kPreparedBytes; at += kLineBytes) {
      PrefetchToRead(slot + at);
    }
  }
  template <class T>
  T* SlotAs(uint32_t index) const {
    return reinterpret_cast<T*>(Slot(index));
  }

 private:
  static constexpr uint32_t kLineBytes = 64;
  static constexpr uint32_t kPreparedBytes = 2 * kLineBytes;  // a request with a short payload
  static constexpr uint32_t kEnded = 0;                       // the number of no ring

  uint32_t& ProducersNumber() const { return buffer_->pad_2[0]; }
  uint32_t& ConsumersNumber() const { return buffer_->pad_3[0]; }
  void SetNumbers(uint32_t number) {
    std::atomic_ref(ProducersNumber()).store(number, std::memory_order_release);
    std::atomic_ref(ConsumersNumber()).store(number, std::memory_order_release);
  }
  bool Is(uint32_t& number) const {
    return std::atomic_ref(number).load(std::memory_order_acquire) == number_;
  }
  uint32_t Load(uint32_t& index) const {
    return std::atomic_ref(index).load(std::memory_order_acquire) & mask_;
  }
  void Store(uint32_t& index, uint32_t value) {
    std::atomic_ref(index).store(value & mask_, std::memory_order_release);
  }

  rxe_queue_buf* buffer_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t shift_ = 0;
  uint32_t number_ = kEnded;
};

// Returns the bytes of one receive slot, rounded up to a power of two.
inline uint32_t RecvSlotBytes(uint32_t max_sge) {
  return std::bit_ceil(static_cast<uint32_t>(sizeof(rxe_recv_wqe) + max_sge * sizeof(rxe_sge)));
}

}  // namespace rdmaemu
