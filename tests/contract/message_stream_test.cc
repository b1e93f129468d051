// Streams of small messages on several queue pairs with common completion queues. A sender does not
// wait for the receiver, and posts single requests and lists. An implementation may pass such
// messages without its device.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "tests/contract/support/payload.h"
#include "tests/contract/support/yield.h"

namespace rdma_contract {
namespace {

using MessageStream = testing::TestWithParam<Sides>;

constexpr uint32_t kSlot = 512;       // bytes of a receive
constexpr int kMostPairs = 40;        // queue pairs
constexpr uint32_t kReceives = 128;   // of each queue pair
constexpr uint32_t kMostPieces = 64;  // requests of a list
constexpr int kCqEntries = 8192;      // each message fits
constexpr uint32_t kSizes[] = {8, 64, 256, 255, 64, 9};

// Memory of the arena, to which both sides write.
struct Shared {
  std::atomic<uint32_t> sent, received;  // messages of all queue pairs
  std::atomic<uint32_t> is_asleep;
};

struct StreamOrder {
  int first = 0, pairs = 1;  // the queue pairs by index: first, first + 1, ...
  uint32_t messages = 3000;  // in all
  uint32_t list = 1;         // requests of a list
  uint32_t signal_each = 4;  // one of so many requests is signaled
  uint32_t window = 32;      // how many messages may be sent and not received
  bool is_inline = false;
  // 0: never.
  uint32_t large_each = 0;       // one of so many messages is larger than 256 bytes
  uint32_t awaits_each = 0;      // the sender awaits its completions after so many lists
  uint32_t pause_each = 0;       // the receiver lets the window fill up after so many messages
  uint32_t arm_at = UINT32_MAX;  // the receiver waits for events from this message on
  uint64_t shared = 0, memory = 0;
  uint32_t key = 0;

  Shared& both() const { return *reinterpret_cast<Shared*>(shared); }
  uint32_t SizeOf(uint32_t message) const {
    if (large_each != 0 && message % large_each == large_each - 1) return 300;
    return kSizes[message % std::size(kSizes)];
  }
};

// ---- set-up

struct PairsOrder {
  int pairs;
  bool has_channel;
};
// Creates queue pairs with one send CQ and one receive CQ. Returns the first one's index.
int CreatePairsStep(State& state, const PairsOrder& order) {
  QueuePair all;
  ibv_comp_channel* const channel =
      order.has_channel ? ibv_create_comp_channel(state.context) : nullptr;
  all.send_cq = ibv_create_cq(state.context, kCqEntries, nullptr, nullptr, 0);
  all.receive_cq = ibv_create_cq(state.context, kCqEntries, nullptr, channel, 0);
  if (all.send_cq == nullptr || all.receive_cq == nullptr) return -1;
  const int first = static_cast<int>(state.qps.size());
  for (int i = 0; i < order.pairs; i++) {
    ibv_qp_init_attr init{};
    init.send_cq = all.send_cq;
    init.recv_cq = all.receive_cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {2 * kMostPieces, kReceives, 1, 1, 256};
    all.qp = ibv_create_qp(state.pd, &init);
    if (all.qp == nullptr) return -1;
    all.psn = 0xffff00 + static_cast<uint32_t>(i);  // close to the 24-bit wrap
    state.qps.push_back(all);
  }
  return first;
}

bool PostReceiveAt(const StreamOrder& order, State& state, int pair, uint32_t slot) {
  const uint64_t at =
      order.memory + (uint64_t{static_cast<uint32_t>(pair)} * kReceives + slot) * kSlot;
  ibv_sge piece{at, kSlot, order.key};
  ibv_recv_wr wr{at, nullptr, &piece, 1}, *bad = nullptr;
  return ibv_post_recv(state.qps[static_cast<size_t>(order.first + pair)].qp, &wr, &bad) == 0;
}
int PostReceivesStep(State& state, const StreamOrder& order) {
  for (int pair = 0; pair < order.pairs; pair++) {
    for (uint32_t slot = 0; slot < kReceives; slot++) {
      if (!PostReceiveAt(order, state, pair, slot)) return -1;
    }
  }
  return 0;
}

// ---- the sender

// Message `number` of the stream has its number, and bytes that depend on it.
void FillMessage(uint8_t* bytes, uint32_t number, uint32_t size) {
  memset(bytes, static_cast<uint8_t>(number * 7), size);
  memcpy(bytes, &number, sizeof number);
}

class Sender {
 public:
  Sender(State& state, const StreamOrder& order) : state_(state), order_(order) {}
  // Returns how many messages were sent and completed as they must.
  uint32_t Run() {
    uint32_t sent = 0;
    for (uint32_t turn = 0; sent < order_.messages; turn++) {
      const int pair = static_cast<int>(turn * 5 % static_cast<uint32_t>(order_.pairs));
      const uint32_t count = std::min(order_.list, order_.messages - sent);
      if (!AwaitRoom(pair, sent + count) || !PostList(pair, sent, count)) return sent;
      sent += count;
      order_.both().sent = sent;
      if (order_.awaits_each != 0 && turn % order_.awaits_each == 0 && !AwaitAll()) return sent;
      if (!Poll()) return sent;
    }
    return AwaitAll() ? sent : 0;
  }

 private:
  // The send queue holds all posted requests. Each of its places has a buffer, which the completed
  // request no longer needs.
  bool AwaitRoom(int pair, uint32_t end) {
    return YieldUntil([&] {
      if (!Poll()) return false;
      return order_.both().received + order_.window >= end &&
             in_queue_[pair] + order_.list <= 2 * kMostPieces;
    });
  }
  bool PostList(int pair, uint32_t first, uint32_t count) {
    ibv_sge pieces[kMostPieces];
    ibv_send_wr list[kMostPieces] = {}, *bad = nullptr;
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t number = first + i;
      const uint64_t at = SlotOf(pair, posted_[pair] % kReceives);
      FillMessage(reinterpret_cast<uint8_t*>(at), number, order_.SizeOf(number));
      pieces[i] = {at, order_.SizeOf(number), order_.key};
      list[i].wr_id = uint64_t{static_cast<uint32_t>(pair)} << 32 | posted_[pair]++;
      list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
      list[i].sg_list = &pieces[i];
      list[i].num_sge = 1;
      list[i].opcode = number % 3 == 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      list[i].imm_data = number;
      // The last one of a list is signaled, so that the queue does not fill up.
      const bool is_signaled = i + 1 == count || number % order_.signal_each == 0;
      if (is_signaled) list[i].send_flags |= IBV_SEND_SIGNALED;
      if (order_.is_inline && order_.SizeOf(number) <= 256) list[i].send_flags |= IBV_SEND_INLINE;
      if (is_signaled) signaled_[pair].push_back(list[i].wr_id);
    }
    in_queue_[pair] += count;
    return ibv_post_send(state_.qps[static_cast<size_t>(order_.first + pair)].qp, list, &bad) == 0;
  }
  // Takes completions. Each queue pair's are in order.
  bool Poll() {
    ibv_wc wc[16];
    const int count = ibv_poll_cq(state_.qps[static_cast<size_t>(order_.first)].send_cq, 16, wc);
    for (int i = 0; i < count; i++) {
      const auto pair = static_cast<int>(wc[i].wr_id >> 32);
      if (wc[i].status != IBV_WC_SUCCESS || wc[i].opcode != IBV_WC_SEND || pair >= order_.pairs) {
        return is_good_ = false;
      }
      auto& due = signaled_[pair];
      if (due.empty() || due.front() != wc[i].wr_id) return is_good_ = false;
      due.erase(due.begin());
      in_queue_[pair] = posted_[pair] - 1 - static_cast<uint32_t>(wc[i].wr_id);
    }
    return is_good_ && count >= 0;
  }
  bool AwaitAll() {
    return YieldUntil([&] {
             return !Poll() ||
                    std::ranges::all_of(signaled_, [](const auto& due) { return due.empty(); });
           }) &&
           is_good_;
  }

  uint64_t SlotOf(int pair, uint32_t slot) const {
    return order_.memory + (static_cast<uint64_t>(pair) * kReceives + slot) * kSlot;
  }

  State& state_;
  const StreamOrder& order_;
  uint32_t posted_[kMostPairs] = {}, in_queue_[kMostPairs] = {};
  std::vector<uint64_t> signaled_[kMostPairs];
  bool is_good_ = true;
};
uint32_t SendStep(State& state, const StreamOrder& order) { return Sender(state, order).Run(); }

// ---- the receiver

// Returns whether the completion and the bytes are those of the message, which it sets.
bool IsGood(const StreamOrder& order, const ibv_wc& wc, uint32_t* number) {
  if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV) return false;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(wc.wr_id);
  memcpy(number, bytes, sizeof *number);
  if (*number >= order.messages || wc.byte_len != order.SizeOf(*number)) return false;
  uint8_t expected[kSlot];
  FillMessage(expected, *number, wc.byte_len);
  const bool has_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  return memcmp(bytes, expected, wc.byte_len) == 0 && has_immediate == (*number % 3 == 0) &&
         (!has_immediate || wc.imm_data == *number);
}

// Waits for an event of the armed queue.
bool Sleep(const StreamOrder& order, ibv_cq* cq) {
  order.both().is_asleep++;
  pollfd waiting{cq->channel->fd, POLLIN, 0};
  if (poll(&waiting, 1, kPatience_ms) != 1) return false;
  ibv_cq* raised = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(cq->channel, &raised, &user) != 0) return false;
  ibv_ack_cq_events(raised, 1);
  return raised == cq;
}

// Waits until the sender may not send more before this side has received more.
bool AwaitFullWindow(const StreamOrder& order, uint32_t received) {
  return YieldUntil([&] {
    const uint32_t sent = order.both().sent;
    return sent == order.messages || sent + order.list > received + order.window;
  });
}

// Receives all messages. Returns how many were as they must. `in_order`: all queue pairs' messages
// together are in the order in which they were sent.
uint32_t Receive(State& state, const StreamOrder& order, bool in_order) {
  ibv_cq* const cq = state.qps[static_cast<size_t>(order.first)].receive_cq;
  std::vector<int64_t> last(static_cast<size_t>(order.pairs), -1);
  uint32_t total = 0;
  bool is_armed = false;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
  while (total < order.messages && std::chrono::steady_clock::now() < until) {
    ibv_wc wc[8];
    const int count = ibv_poll_cq(cq, 1 + static_cast<int>(total % 8), wc);
    if (count < 0) return total;
    for (int i = 0; i < count; i++) {
      uint32_t number = 0;
      if (!IsGood(order, wc[i], &number)) return total;
      const uint64_t slot = (wc[i].wr_id - order.memory) / kSlot;
      const auto pair = static_cast<size_t>(slot / kReceives);
      if (wc[i].qp_num != state.qps[static_cast<size_t>(order.first) + pair].qp->qp_num)
        return total;
      if (last[pair] >= number || (in_order && number != total)) return total;
      last[pair] = number;
      if (!PostReceiveAt(order, state, static_cast<int>(pair), slot % kReceives)) return total;
      total++;
      order.both().received = total;
      if (order.pause_each != 0 && total % order.pause_each == 0) {
        if (!AwaitFullWindow(order, total)) return total;
      }
    }
    if (count == 0 && total >= order.arm_at) {
      if (is_armed && !Sleep(order, cq)) return total;
      is_armed = !is_armed;
      if (is_armed && ibv_req_notify_cq(cq, 0) != 0) return total;
    } else if (count == 0) {
      sched_yield();
    }
  }
  return total;
}
uint32_t ReceiveStep(State& state, const StreamOrder& order) {
  return Receive(state, order, false);
}
uint32_t ReceiveInOrderStep(State& state, const StreamOrder& order) {
  return Receive(state, order, true);
}

// ---- the tests

class Streams {
 public:
  Streams(Sides sides, int pairs, bool has_channel = false)
      : local_(Place::kThisProcess),
        remote_owner_(sides == Sides::kTwoProcesses ? new Side(Place::kPeersMachine)
                                                    : new Side(Place::kThisProcess)),
        remote_(*remote_owner_) {
    ResetArena();
    EXPECT_EQ(local_.Open(), 0);
    EXPECT_EQ(remote_.Open(), 0);
    const int mine = local_.worker().Call(&CreatePairsStep, PairsOrder{pairs, false});
    const int other = remote_.worker().Call(&CreatePairsStep, PairsOrder{pairs, has_channel});
    for (int i = 0; i < pairs; i++) {
      const QpAddress there = remote_.AddressOf(other + i), here = local_.AddressOf(mine + i);
      EXPECT_EQ(remote_.Connect(other + i, {.mtu = IBV_MTU_4096}, here), 0);
      EXPECT_EQ(local_.Connect(mine + i, {.mtu = IBV_MTU_4096}, there), 0);
    }
    const size_t bytes = size_t{static_cast<uint32_t>(pairs)} * kReceives * kSlot;
    const Buffer from = Allocate(bytes), to = Allocate(bytes), shared = Allocate(sizeof(Shared));
    sent_.first = mine;
    sent_.pairs = pairs;
    sent_.shared = shared.address();
    sent_.memory = from.address();
    sent_.key = local_.Register(from).lkey;
    received_ = sent_;
    received_.first = other;
    received_.memory = to.address();
    received_.key = remote_.Register(to).lkey;
    EXPECT_EQ(remote_.worker().Call(&PostReceivesStep, received_), 0);
  }
  // Changes both sides' orders.
  template <class Change>
  void Set(const Change& change) {
    change(sent_);
    change(received_);
  }
  void Run(uint32_t (*receive)(State&, const StreamOrder&) = &ReceiveStep) {
    sent_.both().sent = sent_.both().received = 0;
    remote_.worker().Begin(receive, received_);
    EXPECT_EQ(local_.worker().Call(&SendStep, sent_), sent_.messages);
    EXPECT_EQ(remote_.worker().Finish<uint32_t>(), sent_.messages);
    EXPECT_TRUE(GuardsIntact());
  }
  uint32_t sleeps() const { return sent_.both().is_asleep; }

 private:
  Side local_;
  std::unique_ptr<Side> remote_owner_;
  Side& remote_;
  StreamOrder sent_{}, received_{};
};

TEST_P(MessageStream, EachMessageArrivesOnceAndInTheOrderOfItsQueuePair) {
  for (const int pairs : {1, 2, 16, kMostPairs}) {
    for (const uint32_t list : {1u, 16u, kMostPieces}) {
      SCOPED_TRACE(testing::Message() << pairs << " queue pairs, lists of " << list);
      Streams streams(GetParam(), pairs);
      streams.Set([&](StreamOrder& order) {
        order.list = list;
        order.window = kReceives;
        order.is_inline = list == 16;
      });
      streams.Run();
    }
  }
}

// Runs a stream on one queue pair, and one on several.
template <class Change>
void RunOnOneAndOnSeveral(Sides sides, const Change& change) {
  for (const int pairs : {1, 16}) {
    SCOPED_TRACE(pairs);
    Streams streams(sides, pairs);
    streams.Set(change);
    streams.Run();
  }
}

// With more than 256 bytes, messages pass the device.
TEST_P(MessageStream, LargeMessagesKeepTheirPlaceAmongSmallOnes) {
  RunOnOneAndOnSeveral(GetParam(), [](StreamOrder& order) {
    order.large_each = 50;
    order.list = 4;
    order.window = kReceives;
  });
}

TEST_P(MessageStream, AReceiverThatDoesNotPollForAWhileGetsAllMessages) {
  RunOnOneAndOnSeveral(GetParam(), [](StreamOrder& order) {
    order.pause_each = 500;
    order.list = 8;
    order.window = kReceives;
  });
}

// rdma_rxe acknowledges a message after its completion is in the receiver's queue.
TEST_P(MessageStream, AMessageFollowsThoseOfOtherQueuePairsThatHadCompletedBefore) {
  for (const int pairs : {2, 16, kMostPairs}) {
    for (const uint32_t large_each : {0u, 30u}) {
      SCOPED_TRACE(testing::Message() << pairs << " queue pairs, large each " << large_each);
      Streams streams(GetParam(), pairs);
      streams.Set([&](StreamOrder& order) {
        order.large_each = large_each;
        order.awaits_each = 1;
        order.window = 64;
      });
      streams.Run(&ReceiveInOrderStep);
    }
  }
}

// A receiver that has polled all the time waits for events from the middle of the stream on.
TEST_P(MessageStream, AQueueThatIsArmedInTheMiddleRaisesItsEvents) {
  for (const int pairs : {1, 2, 16}) {
    for (const uint32_t window : {1u, 8u}) {
      SCOPED_TRACE(testing::Message() << pairs << " queue pairs, window " << window);
      Streams streams(GetParam(), pairs, /*has_channel=*/true);
      streams.Set([&](StreamOrder& order) {
        order.messages = 2000;
        order.window = window;
        order.arm_at = 1000;
      });
      streams.Run();
      EXPECT_GT(streams.sleeps(), 0u);
    }
  }
}

EACH_WAY_OF_SIDES(MessageStream);

}  // namespace
}  // namespace rdma_contract
