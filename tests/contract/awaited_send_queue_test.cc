// Completion queues of the receiver of awaited SENDs, and their events.
// See awaited_send_test.cc.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "tests/contract/support/conversation.h"

namespace rdma_contract {
namespace {

using AwaitedSendQueue = testing::TestWithParam<Sides>;

// ---- steps of events

struct ArmOrder {
  int qp;
  bool solicited_only;
};
int ArmReceivesStep(State& state, const ArmOrder& order) {
  return ibv_req_notify_cq(ReceiveCqOf(state, order.qp), order.solicited_only ? 1 : 0);
}

struct EventOrder {
  int qp, limit_ms;
};
// Returns whether the receive queue's channel has had an event of the queue.
int TakeReceiveEventStep(State& state, const EventOrder& order) {
  ibv_cq* const cq = ReceiveCqOf(state, order.qp);
  pollfd waiting{cq->channel->fd, POLLIN, 0};
  if (poll(&waiting, 1, order.limit_ms) != 1) return 0;
  ibv_cq* raised = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(cq->channel, &raised, &user) != 0) return 0;
  ibv_ack_cq_events(raised, 1);
  return raised == cq ? 1 : 0;
}
// As TakeReceiveEventStep, from a set of epoll that has the channel's descriptor.
int AwaitByEpollStep(State& state, const EventOrder& order) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event wanted{.events = EPOLLIN | EPOLLET, .data = {}};
  epoll_event seen{};
  const int fd = ReceiveCqOf(state, order.qp)->channel->fd;
  const bool is_readable = epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0 &&
                           epoll_wait(set, &seen, 1, order.limit_ms) == 1;
  close(set);
  return is_readable ? TakeReceiveEventStep(state, {order.qp, 0}) : 0;
}

// A conversation whose receiver has a completion channel. The sender has none.
class WithEvents : public Conversation {
 public:
  explicit WithEvents(Sides sides, int (*take)(State&, const EventOrder&) = &TakeReceiveEventStep)
      : Conversation(sides, SpecWithChannel()), take_(take) {}
  void Arm(bool solicited_only = false) {
    ASSERT_EQ(remote().worker().Call(&ArmReceivesStep, ArmOrder{pair.remote, solicited_only}), 0);
  }
  void ExpectEvent() {
    EXPECT_EQ(remote().worker().Call(take_, EventOrder{pair.remote, kPatience_ms}), 1);
  }
  void ExpectNoEvent() { EXPECT_EQ(remote().worker().Call(take_, EventOrder{pair.remote, 0}), 0); }

 private:
  static TalkSpec SpecWithChannel() {
    TalkSpec spec;
    spec.create_receiver = [](Side& side, QpSpec qp) {
      qp.sleeps = true;
      return side.CreateQp(qp);
    };
    return spec;
  }
  int (*take_)(State&, const EventOrder&);
};

constexpr unsigned kSolicited = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

// ---- events

TEST_P(AwaitedSendQueue, AnArmedQueueRaisesAnEventForEachMessage) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const uint32_t size : {8u, 0u, 256u, 257u, 64u, 255u}) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
    talk.ExpectEvent();
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendQueue, SeveralMessagesRaiseOneEvent) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    for (int k = 0; k < 4; k++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    talk.ExpectEvent();
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

// ibv_poll_cq(3): a poll that returns fewer completions than it has room for has emptied the queue.
TEST_P(AwaitedSendQueue, OnePollReturnsAllMessagesThatHaveBeenSent) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 300; i++) {
    const int count = 1 + i % 4;
    const bool is_armed = i % 8 < 6;
    if (is_armed) {
      ASSERT_NO_FATAL_FAILURE(talk.Arm());
    }
    for (int k = 0; k < count; k++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    if (is_armed) talk.ExpectEvent();
    const Polled polled = talk.Poll(kMostPolled);
    ASSERT_EQ(polled.count, count) << "round " << i;
    for (int k = 0; k < count; k++) ASSERT_NO_FATAL_FAILURE(talk.Compare(polled.wc[k]));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

TEST_P(AwaitedSendQueue, AQueueThatIsArmedTwiceRaisesOneEvent) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
    talk.ExpectEvent();
    talk.ExpectNoEvent();
  }
}

TEST_P(AwaitedSendQueue, AQueueThatIsNotArmedRaisesNone) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) ASSERT_NO_FATAL_FAILURE(talk.Exchange({.flags = kSolicited}));
  talk.ExpectNoEvent();
}

TEST_P(AwaitedSendQueue, OnlySolicitedMessagesRaiseTheEventOfAQueueThatIsArmedForThem) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
    for (int i = 0; i < 4; i++) {
      ASSERT_NO_FATAL_FAILURE(talk.Arm(/*solicited_only=*/true));
      for (int k = 0; k < 3; k++) {
        ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8, .opcode = opcode}));
      }
      talk.ExpectNoEvent();
      ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8, .opcode = opcode, .flags = kSolicited}));
      talk.ExpectEvent();
      ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8, .opcode = opcode, .flags = kSolicited}));
      talk.ExpectNoEvent();
    }
  }
}

TEST_P(AwaitedSendQueue, ASolicitedArmingOutlivesBurstsOfOtherMessages) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 100; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm(true));
    for (int k = 0; k < i % 5; k++) ASSERT_NO_FATAL_FAILURE(talk.Post({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.AwaitAll());
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = i % 2 == 0 ? 8u : 300u}));
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8, .flags = kSolicited}));
    talk.ExpectEvent();
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendQueue, AnArmingForAllMessagesHoldsBesideOneForSolicitedOnes) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const bool solicited_first : {true, false, true, false}) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm(solicited_first));
    ASSERT_NO_FATAL_FAILURE(talk.Arm(!solicited_first));
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
    talk.ExpectEvent();
    talk.ExpectNoEvent();
  }
}

TEST_P(AwaitedSendQueue, AMessageFromBeforeTheArmingIsPolledAndRaisesNone) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    talk.ExpectEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendQueue, AQueueIsArmedBetweenUnpolledMessages) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    for (int k = 0; k < 3; k++) {
      ASSERT_NO_FATAL_FAILURE(talk.Arm());
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 16}));
      talk.ExpectEvent();
      talk.ExpectNoEvent();
    }
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendQueue, AnEventCanBeTakenAfterItsMessage) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    talk.ExpectEvent();
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
    talk.ExpectEvent();
  }
}

TEST_P(AwaitedSendQueue, EpollReportsTheChannel) {
  WithEvents talk(GetParam(), &AwaitByEpollStep);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    talk.ExpectNoEvent();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    talk.ExpectEvent();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
    // The thread waits before the message is sent.
    ASSERT_NO_FATAL_FAILURE(talk.Arm());
    talk.remote().worker().Begin(&AwaitByEpollStep, EventOrder{talk.pair.remote, kPatience_ms});
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    EXPECT_EQ(talk.remote().worker().Finish<int>(), 1);
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendQueue, AFlushedReceiveRaisesTheEventOfASolicitedArming) {
  WithEvents talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  ASSERT_NO_FATAL_FAILURE(talk.Arm(/*solicited_only=*/true));
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  talk.ExpectNoEvent();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(talk.remote().Modify(talk.pair.remote, attr, IBV_QP_STATE), 0);
  talk.ExpectEvent();
  ASSERT_NO_FATAL_FAILURE(talk.Receive());
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFlushed());
}

// ---- queues

struct SharedCqOrder {
  int sibling;  // the queue pair whose receive queue the new one uses
  QpSpec spec;
};
int CreateOnCqOfStep(State& state, const SharedCqOrder& order) {
  QueuePair made = state.qps[static_cast<size_t>(order.sibling)];
  ibv_qp_init_attr init{};
  init.send_cq = made.send_cq;
  init.recv_cq = made.receive_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {order.spec.depth, order.spec.depth, order.spec.pieces, order.spec.pieces, 0};
  made.qp = ibv_create_qp(state.pd, &init);
  if (made.qp == nullptr) return -errno;
  made.psn = 0xffff00 + static_cast<uint32_t>(state.qps.size());
  state.qps.push_back(made);
  return static_cast<int>(state.qps.size()) - 1;
}

TEST_P(AwaitedSendQueue, OneQueueServesSeveralQueuePairs) {
  std::vector<Conversation> talks;
  talks.emplace_back(GetParam());
  ASSERT_NO_FATAL_FAILURE(talks[0].Begin());
  for (int i = 1; i < 3; i++) {
    TalkSpec spec;
    spec.create_receiver = [&](Side& side, const QpSpec& qp) {
      return side.worker().Call(&CreateOnCqOfStep, SharedCqOrder{talks[0].pair.remote, qp});
    };
    Conversation talk(talks[0], spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    talks.push_back(std::move(talk));
  }
  for (uint32_t round = 0; round < 20; round++) {
    const uint32_t messages = 1 + round % 9;
    for (uint32_t i = 0; i < messages; i++) {
      ASSERT_NO_FATAL_FAILURE(talks[(round + i * i) % 3].Send({.size = i % 2 == 0 ? 8u : 300u}));
    }
    for (uint32_t i = 0; i < messages;) {
      const Polled polled = talks[0].Poll(1 + static_cast<int>(round % 4));
      ASSERT_GT(polled.count, 0);
      for (int k = 0; k < polled.count; k++, i++) {
        const auto talk = std::ranges::find_if(talks, [&](const Conversation& one) {
          return one.pair.remote_address.qpn == polled.wc[k].qp_num;
        });
        ASSERT_NE(talk, talks.end());
        ASSERT_NO_FATAL_FAILURE(talk->Compare(polled.wc[k]));
      }
    }
    talks[0].ExpectNothing();
    for (Conversation& talk : talks) ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

TEST_P(AwaitedSendQueue, ASmallQueueIsFilledAgainAndAgain) {
  constexpr int kEntries = 7;
  TalkSpec spec;
  spec.qp.receive_cqe = kEntries;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < kEntries; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(round % 2 == 0 ? 1 : kEntries));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

// The completions of the flushed receives do not fit either.
TEST_P(AwaitedSendQueue, AMessageBeyondItsQueueEndsTheReceiver) {
  constexpr int kEntries = 7;
  TalkSpec spec;
  spec.qp.receive_cqe = kEntries;
  spec.path = {.mtu = IBV_MTU_4096, .timeout = 15, .retry = 3};  // retries for half a second
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < kEntries; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = 8}, IBV_WC_RETRY_EXC_ERR));
  EXPECT_EQ(talk.remote().NextAsyncEvent(kPatience_ms), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(talk.remote().StateOf(talk.pair.remote), IBV_QPS_ERR);
  ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
}

// ---- extended queues

int CreateWithExtendedCqStep(State& state, const QpSpec& spec) {
  ibv_cq_init_attr_ex init_cq{};
  init_cq.cqe = static_cast<uint32_t>(spec.cqe);
  init_cq.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* const ex = ibv_create_cq_ex(state.context, &init_cq);
  if (ex == nullptr) return -errno;
  QueuePair made;
  made.receive_cq = made.send_cq = ibv_cq_ex_to_cq(ex);
  state.qps.push_back(made);
  return CreateOnCqOfStep(state, {static_cast<int>(state.qps.size()) - 1, spec});
}

// As PollManyStep, by ibv_start_poll and ibv_next_poll.
Polled PollExtendedStep(State& state, const PollManyOrder& order) {
  // ibv_cq_ex_to_cq returns the same address.
  auto* const ex = reinterpret_cast<ibv_cq_ex*>(ReceiveCqOf(state, order.qp));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(order.limit_ms);
  ibv_poll_cq_attr attr{};
  int result = ENOENT;
  while ((result = ibv_start_poll(ex, &attr)) == ENOENT &&
         std::chrono::steady_clock::now() < until) {
    sched_yield();
  }
  Polled polled;
  if (result != 0) {
    polled.count = result == ENOENT ? 0 : -1;
    return polled;
  }
  while (result == 0) {
    ibv_wc& wc = polled.wc[polled.count++];
    wc.wr_id = ex->wr_id;
    wc.status = ex->status;
    wc.opcode = ibv_wc_read_opcode(ex);
    wc.vendor_err = ibv_wc_read_vendor_err(ex);
    wc.byte_len = ibv_wc_read_byte_len(ex);
    wc.imm_data = ibv_wc_read_imm_data(ex);
    wc.qp_num = ibv_wc_read_qp_num(ex);
    wc.src_qp = ibv_wc_read_src_qp(ex);
    wc.wc_flags = ibv_wc_read_wc_flags(ex);
    wc.slid = static_cast<uint16_t>(ibv_wc_read_slid(ex));
    wc.sl = ibv_wc_read_sl(ex);
    wc.dlid_path_bits = ibv_wc_read_dlid_path_bits(ex);
    if (polled.count == order.entries) break;
    result = ibv_next_poll(ex);
  }
  ibv_end_poll(ex);
  if (result != 0 && result != ENOENT) polled.count = -1;
  return polled;
}

TEST_P(AwaitedSendQueue, ExtendedPollsReturnTheMessages) {
  TalkSpec spec;
  spec.create_receiver = [](Side& side, const QpSpec& qp) {
    return side.worker().Call(&CreateWithExtendedCqStep, qp);
  };
  spec.poll = &PollExtendedStep;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const int at_once : {1, 10, 3, 2}) {
    for (const uint32_t size : {0u, 1u, 256u, 257u, 8u, 4096u, 255u}) {
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size, .opcode = IBV_WR_SEND_WITH_IMM}));
    }
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(at_once));
    talk.ExpectNothing();
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

EACH_WAY_OF_SIDES(AwaitedSendQueue);

}  // namespace
}  // namespace rdma_contract
