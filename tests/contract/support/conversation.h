// Two sides of which one sends small messages. The sender awaits each completion before it posts
// the next request, and the receiver posts each receive again. For tests of messages that an
// implementation may pass without its device once it has learned from such a conversation.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "tests/contract/support/payload.h"

namespace rdma_contract {

// ---- steps

inline ibv_cq* ReceiveCqOf(State& state, int qp) {
  return state.qps[static_cast<size_t>(qp)].receive_cq;
}

inline constexpr int kMostPolled = 256;
struct PollManyOrder {
  int qp, entries;  // at most kMostPolled entries
  int limit_ms = kPatience_ms;
};
struct Polled {
  int count = 0;  // as of ibv_poll_cq
  ibv_wc wc[kMostPolled] = {};
};
// Waits for completions of the receive queue without arming it. Returns those that one call of
// ibv_poll_cq has returned.
inline Polled PollManyStep(State& state, const PollManyOrder& order) {
  ibv_cq* const cq = ReceiveCqOf(state, order.qp);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(order.limit_ms);
  Polled polled;
  while ((polled.count = ibv_poll_cq(cq, order.entries, polled.wc)) == 0 &&
         std::chrono::steady_clock::now() < until) {
    sched_yield();
  }
  return polled;
}

// ---- the conversation

inline bool IsOwn(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == kOwn; });
}

struct TalkSpec {
  QpSpec qp;
  PathSpec path{.mtu = IBV_MTU_4096};
  uint32_t receives = 16;  // that the receiver has posted before the first message
  PayloadPair::Where where = PayloadPair::Where::kThisProcess;
  // How the receiver creates its queue pair, and polls.
  std::function<int(Side&, const QpSpec&)> create_receiver = &Side::CreateQp;
  Polled (*poll)(State&, const PollManyOrder&) = &PollManyStep;
};

struct Message {
  uint32_t size = 8;
  ibv_wr_opcode opcode = IBV_WR_SEND;  // or SEND_WITH_IMM, RDMA_WRITE_WITH_IMM (to `target`)
  unsigned flags = IBV_SEND_SIGNALED;
  int pieces = 1;  // or 2
};

// A message that was polled.
struct Arrived {
  Message message;
  uint32_t seed = 0;  // of its bytes
  Buffer slot;        // of its receive
};

// The methods that ASSERT need ASSERT_NO_FATAL_FAILURE around them.
class Conversation {
 public:
  static constexpr uint32_t kSlot = 8192;  // bytes of a receive, and of the longest message
  static constexpr int kFirstMessages = 20;

  explicit Conversation(Sides sides, const TalkSpec& wanted = {})
      : spec(wanted),
        local_(new Side(spec.where == PayloadPair::Where::kThisProcess ? Place::kThisProcess
                                                                       : Place::kLocalProcess)),
        remote_(sides == Sides::kTwoProcesses ? std::make_shared<Side>(Place::kPeersMachine)
                                              : local_) {
    ResetArena();
  }
  // Another pair of queue pairs of the same sides.
  Conversation(const Conversation& sibling, const TalkSpec& wanted)
      : spec(wanted), local_(sibling.local_), remote_(sibling.remote_) {}
  Conversation(Conversation&&) = default;

  Side& local() { return *local_; }
  Side& remote() { return *remote_; }
  size_t posted_receives() const { return posted_.size(); }
  size_t unpolled() const { return sent_.size(); }
  uint32_t last_seed() const { return last_seed_; }

  // Connects the queue pairs, posts the receives and exchanges the first messages.
  void Begin() {
    ASSERT_EQ(local().Open(), 0);
    ASSERT_EQ(remote().Open(), 0);
    pair.local = local().CreateQp(spec.qp);
    pair.remote = spec.create_receiver(remote(), spec.qp);
    ASSERT_GE(pair.local, 0);
    ASSERT_GE(pair.remote, 0);
    pair.local_address = local().AddressOf(pair.local);
    pair.remote_address = remote().AddressOf(pair.remote);
    slots_ = 2 * spec.receives + 16;
    source_ = Allocate(size_t{kSources} * kSlot);
    receives_ = Allocate(size_t{slots_} * kSlot);
    other = Allocate(kSlot);
    target = Allocate(kSlot);
    from = local().Register(source_);
    to = remote().Register(receives_);
    other_region = local().Register(other);
    target_region = remote().Register(target);
    ASSERT_NO_FATAL_FAILURE(ConnectAndExchange());
  }
  // For new queue pairs, or those that were reset.
  void ConnectAndExchange() {
    posted_.clear();
    sent_.clear();
    awaited_.clear();
    ASSERT_EQ(remote().Connect(pair.remote, spec.path, pair.local_address), 0);
    ASSERT_EQ(local().Connect(pair.local, spec.path, pair.remote_address), 0);
    ASSERT_NO_FATAL_FAILURE(PostReceives());
    for (int i = 0; i < kFirstMessages; i++) {
      ASSERT_NO_FATAL_FAILURE(Exchange({.size = i % 2 == 0 ? 8u : 256u}));
    }
  }
  void Exchange(const Message& message) {
    ASSERT_NO_FATAL_FAILURE(Send(message));
    ASSERT_NO_FATAL_FAILURE(ReceiveInArrays(1));
    ASSERT_NO_FATAL_FAILURE(PostReceives());
  }

  // ---- the sender

  // Posts a message and awaits its completion.
  void Send(const Message& message) {
    ASSERT_NO_FATAL_FAILURE(Post(message));
    ASSERT_NO_FATAL_FAILURE(Await());
  }
  void Post(const Message& message) {
    const uint32_t seed = kFirstSeed + number_;
    const WorkRequest request = MakeRequest(message, seed);
    ASSERT_EQ(local().PostSend(pair.local, request), 0);
    if ((message.flags & IBV_SEND_INLINE) != 0) Overwrite(request);
    if ((message.flags & IBV_SEND_SIGNALED) != 0) awaited_.push_back(request);
    sent_.push_back({message, seed, {}});
    number_++;
  }
  // Awaits the next completion of a posted message. The sender then writes to the message's bytes.
  void Await() {
    ASSERT_FALSE(awaited_.empty());
    const Completion done = local().Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(done.found);
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    const WorkRequest& request = awaited_.front();
    EXPECT_EQ(done.wc.wr_id, request.wr_id);
    EXPECT_EQ(done.wc.opcode,
              request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
    EXPECT_EQ(done.wc.qp_num, pair.local_address.qpn);
    Overwrite(request);
    awaited_.pop_front();
  }
  void AwaitAll() {
    while (!awaited_.empty()) ASSERT_NO_FATAL_FAILURE(Await());
  }
  // Posts a message that must fail.
  void ExpectFailure(const Message& message, ibv_wc_status status) {
    WorkRequest request = MakeRequest(message, kFirstSeed + number_);
    ASSERT_EQ(local().PostSend(pair.local, request), 0);
    const Completion failed = local().Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(failed.found);
    EXPECT_EQ(failed.wc.status, status) << Describe(failed);
    EXPECT_EQ(failed.wc.wr_id, request.wr_id);
    EXPECT_EQ(local().StateOf(pair.local), IBV_QPS_ERR);
  }
  // Executes a request that has no part in the conversation.
  void Execute(const WorkRequest& request) {
    ASSERT_EQ(local().PostSend(pair.local, request), 0);
    const Completion done = local().Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(done.found);
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    EXPECT_EQ(done.wc.wr_id, request.wr_id);
  }
  // Writes the message's bytes and returns its request.
  WorkRequest MakeRequest(const Message& message, uint32_t seed) const {
    const Buffer bytes{source_.data + size_t{number_ % kSources} * kSlot, message.size};
    FillPattern(bytes.bytes(), seed);
    WorkRequest request{.wr_id = kFirstSend + number_,
                        .opcode = message.opcode,
                        .flags = message.flags,
                        .imm = ImmediateOf(seed)};
    request.remote_address = target.address();
    request.rkey = target_region.rkey;
    const uint32_t first = message.pieces == 1 ? message.size : message.size / 2;
    if (first > 0) request.Add(bytes.address(), first, from.lkey);
    if (first < message.size) {
      request.Add(bytes.address() + first, message.size - first, from.lkey);
    }
    return request;
  }

  // ---- the receiver

  // The receive's wr_id has the slot's address in its lower 48 bits.
  void PostReceive() {
    const Buffer slot{receives_.data + size_t{slot_ % slots_} * kSlot, kSlot};
    memset(slot.data, kOwn, slot.size);
    const uint64_t wr_id = uint64_t{slot_++} << 48 | slot.address();
    ASSERT_EQ(remote().PostReceive(pair.remote, ReceiveInto(wr_id, slot, to)), 0);
    posted_.push_back({wr_id, slot});
  }
  // Posts receives until there are as many as before the first message.
  void PostReceives() {
    while (posted_.size() < spec.receives) ASSERT_NO_FATAL_FAILURE(PostReceive());
  }
  // Returns the slot of the receive that the next message gets.
  Buffer SlotOfNext() const { return SlotOf(sent_.size()); }
  // Returns the slot of a receive that was not polled. 0: of the oldest one.
  Buffer SlotOf(size_t receive) const { return posted_[receive].slot; }

  // Polls a message and compares its bytes.
  void Receive() {
    const Polled polled = Poll(1);
    ASSERT_EQ(polled.count, 1);
    ASSERT_NO_FATAL_FAILURE(Compare(polled.wc[0]));
  }
  // Polls all messages that were sent, with room for `entries` completions.
  void ReceiveInArrays(int entries) {
    while (!sent_.empty()) {
      const Polled polled =
          Poll(static_cast<int>(std::min(static_cast<size_t>(entries), sent_.size())));
      ASSERT_GT(polled.count, 0);
      for (int i = 0; i < polled.count; i++) ASSERT_NO_FATAL_FAILURE(Compare(polled.wc[i]));
    }
  }
  void ReceiveAll() {
    ASSERT_NO_FATAL_FAILURE(ReceiveInArrays(1));
    ExpectNothing();
    ASSERT_NO_FATAL_FAILURE(PostReceives());
  }
  // Checks a completion of a message that the caller has polled, and compares the bytes.
  void Compare(const ibv_wc& wc) {
    Arrived arrived;
    ASSERT_NO_FATAL_FAILURE(CheckFields(wc, &arrived));
    const bool writes = arrived.message.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const std::span<uint8_t> bytes = (writes ? target : arrived.slot).bytes();
    EXPECT_EQ(FirstDifference(bytes.first(arrived.message.size), arrived.seed), -1)
        << arrived.message.size << " bytes";
    EXPECT_TRUE(IsOwn(arrived.slot.bytes().subspan(writes ? 0 : arrived.message.size)))
        << "beyond " << arrived.message.size << " bytes";
  }
  // As Receive, without the bytes.
  void Take(Arrived* arrived) {
    const Polled polled = Poll(1);
    ASSERT_EQ(polled.count, 1);
    ASSERT_NO_FATAL_FAILURE(CheckFields(polled.wc[0], arrived));
  }
  void ExpectNothing() { EXPECT_EQ(Poll(1, 0).count, 0); }
  Polled Poll(int entries, int limit_ms = kPatience_ms) {
    return remote().worker().Call(spec.poll, PollManyOrder{pair.remote, entries, limit_ms});
  }
  // Polls the flushes of all posted receives.
  void ExpectFlushed() {
    ASSERT_TRUE(sent_.empty());
    for (; !posted_.empty(); posted_.pop_front()) {
      const Polled flushed = Poll(1);
      ASSERT_EQ(flushed.count, 1);
      EXPECT_EQ(flushed.wc[0].status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(flushed.wc[0].wr_id, posted_.front().wr_id);
      EXPECT_TRUE(IsOwn(posted_.front().slot.bytes()));
    }
    ExpectNothing();
  }
  // A message outside the conversation has used the oldest receive.
  void ForgetReceive() { posted_.pop_front(); }
  void CloseSender() { local_.reset(); }

  TalkSpec spec;
  Pair pair{};
  Buffer other, target;  // for other requests: of the sender, of the receiver
  Region from, to, other_region, target_region;

 private:
  static constexpr uint32_t kSources = 16, kFirstSeed = 1000;
  static constexpr uint64_t kFirstSend = 0x5100'0000'0000;
  struct PostedReceive {
    uint64_t wr_id;
    Buffer slot;
  };

  static uint32_t ImmediateOf(uint32_t seed) { return seed * 2654435761u; }
  static void Overwrite(const WorkRequest& request) {
    for (int i = 0; i < request.pieces; i++) {
      memset(reinterpret_cast<void*>(request.piece[i].addr), '-', request.piece[i].length);
    }
  }

  void CheckFields(const ibv_wc& wc, Arrived* arrived) {
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    ASSERT_FALSE(sent_.empty());
    ASSERT_FALSE(posted_.empty());
    *arrived = sent_.front();
    arrived->slot = posted_.front().slot;
    const Message& message = arrived->message;
    EXPECT_EQ(wc.wr_id, posted_.front().wr_id);
    EXPECT_EQ(wc.byte_len, message.size);
    EXPECT_EQ(wc.qp_num, pair.remote_address.qpn);
    EXPECT_EQ(wc.opcode, message.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
                                                                      : IBV_WC_RECV);
    const bool has_immediate = message.opcode != IBV_WR_SEND;
    EXPECT_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, has_immediate);
    if (has_immediate) {
      EXPECT_EQ(ntohl(wc.imm_data), ImmediateOf(arrived->seed));
    }
    // The other fields are those of the first message.
    if (!has_first_) first_ = wc;
    has_first_ = true;
    EXPECT_EQ(wc.wc_flags & ~unsigned{IBV_WC_WITH_IMM},
              first_.wc_flags & ~unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(wc.vendor_err, first_.vendor_err);
    EXPECT_EQ(wc.src_qp, first_.src_qp);
    EXPECT_EQ(wc.pkey_index, first_.pkey_index);
    EXPECT_EQ(wc.slid, first_.slid);
    EXPECT_EQ(wc.sl, first_.sl);
    EXPECT_EQ(wc.dlid_path_bits, first_.dlid_path_bits);
    last_seed_ = arrived->seed;
    sent_.pop_front();
    posted_.pop_front();
  }
  std::shared_ptr<Side> local_, remote_;
  Buffer source_, receives_;
  uint32_t slots_ = 0, slot_ = 0, number_ = 0, last_seed_ = 0;
  std::deque<PostedReceive> posted_;  // neither polled nor flushed
  std::deque<WorkRequest> awaited_;   // without completion
  std::deque<Arrived> sent_;          // posted and not polled by the receiver
  bool has_first_ = false;
  ibv_wc first_{};
};

}  // namespace rdma_contract
