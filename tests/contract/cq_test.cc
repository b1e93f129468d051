// Completion queues: depths, channels and events, arming, solicited completions, resizing, overrun.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

class CqTest : public DeviceTest {};

TEST_F(CqTest, DepthsRoundToOneLessThanAPowerOfTwo) {
  const std::pair<int, int> cases[] = {{1, 1}, {2, 3}, {3, 3}, {7, 7}, {8, 15}, {32766, 32767}};
  for (const auto& [asked, got] : cases) {
    const Cq cq = MakeCq(asked);
    ASSERT_TRUE(cq) << asked;
    EXPECT_EQ(cq->cqe, got) << asked;
  }
}

TEST_F(CqTest, RefusesDepthsAndVectorsThatCannotBe) {
  for (const int cqe : {0, -1, 32768}) {
    EXPECT_EQ(ibv_create_cq(context.get(), cqe, nullptr, nullptr, 0), nullptr) << cqe;
    EXPECT_EQ(errno, EINVAL) << cqe;
  }
  for (const int vector : {99, -1}) {
    EXPECT_EQ(ibv_create_cq(context.get(), 4, nullptr, nullptr, vector), nullptr) << vector;
    EXPECT_EQ(errno, EINVAL) << vector;
  }
}

TEST_F(CqTest, ResizesWithinItsLimits) {
  const Cq cq = MakeCq(8);
  EXPECT_EQ(ibv_resize_cq(cq.get(), 100), 0);
  EXPECT_EQ(cq->cqe, 127);
  EXPECT_EQ(ibv_resize_cq(cq.get(), 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq.get(), 1 << 20), EINVAL);
  EXPECT_EQ(cq->cqe, 127);
}

TEST_F(CqTest, IsBusyWhileAQpUsesIt) {
  const Cq cq = MakeCq();
  Qp qp = MakeQp(IBV_QPT_RC, cq.get());
  ASSERT_TRUE(qp);
  EXPECT_EQ(ibv_destroy_cq(cq.get()), EBUSY);
}

TEST_F(CqTest, ChannelIsBusyWhileACqUsesIt) {
  const Channel channel(ibv_create_comp_channel(context.get()));
  const Cq cq = MakeCq(4, channel.get());
  ASSERT_TRUE(cq);
  EXPECT_EQ(ibv_destroy_comp_channel(channel.get()), EBUSY);
}

class CqEvents : public LoopbackTest {
 protected:
  void SetUp() override {
    channel.reset(ibv_create_comp_channel(context_for_channel()));
    ASSERT_TRUE(channel);
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    ASSERT_NO_FATAL_FAILURE(Connect({}, channel.get()));
  }
  ibv_context* context_for_channel() {
    DeviceTest::SetUp();
    return context.get();
  }
  bool EventComes(int limit_ms = kQuiet_ms) {
    pollfd waiting{channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, limit_ms) != 1) return false;
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(channel.get(), &cq, &user) != 0) return false;
    EXPECT_EQ(cq, receive_cq.get());
    EXPECT_EQ(user, kUser);
    ibv_ack_cq_events(cq, 1);
    return true;
  }
  // Sends one message from a to b, and polls the send completion.
  void Send(unsigned flags = 0) {
    ASSERT_EQ(PostReceive(b.get(), 1), 0);
    ASSERT_EQ(PostSend(a.get(), 1, flags | IBV_SEND_SIGNALED), 0);
    ASSERT_TRUE(PollOne(send_cq.get()).found);
  }
  void DrainReceives() {
    while (PollOne(receive_cq.get(), 0).found) {
    }
  }
  static constexpr int kResizeRounds = 200;
  Channel channel;
};

TEST_F(CqEvents, AnUnarmedQueueIsSilent) {
  Send();
  EXPECT_FALSE(EventComes());
}

TEST_F(CqEvents, AnArmedQueueSpeaksOnceAtItsNextCompletion) {
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 0), 0);
  Send();
  EXPECT_TRUE(EventComes(kPatience_ms));
  Send();
  EXPECT_FALSE(EventComes());
}

TEST_F(CqEvents, ACompletionThatWasThereBeforeArmingGivesNone) {
  Send();
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 0), 0);
  EXPECT_FALSE(EventComes());
  Send();
  EXPECT_TRUE(EventComes(kPatience_ms));
}

TEST_F(CqEvents, SolicitedOnlyWaitsForASolicitedMessage) {
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 1), 0);
  Send();
  EXPECT_FALSE(EventComes());
  Send(IBV_SEND_SOLICITED);
  EXPECT_TRUE(EventComes(kPatience_ms));
}

TEST_F(CqEvents, SolicitedOnlyDoesNotNarrowAnEarlierArming) {
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 1), 0);
  Send();
  EXPECT_TRUE(EventComes(kPatience_ms));
}

TEST_F(CqEvents, AnErrorCountsAsSolicited) {
  ASSERT_EQ(PostReceive(b.get(), 1), 0);
  ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), 1), 0);
  ASSERT_EQ(ToError(b.get()), 0);
  EXPECT_TRUE(EventComes(kPatience_ms));
}

TEST_F(CqEvents, AnEmptyNonBlockingChannelSaysEagain) {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel.get(), &cq, &user), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CqEvents, ResizingKeepsCompletionsAndTheirOrder) {
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(PostReceive(b.get(), 100 + i), 0);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(PostSend(a.get(), i, IBV_SEND_SIGNALED), 0);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(PollOne(send_cq.get()).found);
  ASSERT_EQ(ibv_resize_cq(receive_cq.get(), 200), 0);
  EXPECT_EQ(ibv_resize_cq(receive_cq.get(), 1), EINVAL) << "smaller than what it holds";
  for (uint64_t i = 0; i < 5; ++i) {
    const Completion received = PollOne(receive_cq.get());
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.wr_id, 100 + i);
  }
}

// rdma_rxe takes the queue's lock to arm it and to resize it.
TEST_F(CqEvents, AnArmingIsKeptWhileAnotherThreadResizesTheQueue) {
  std::atomic<bool> is_over = false;
  std::jthread resizing([&] {
    for (int entries = 64; !is_over; entries ^= 64 ^ 128) {
      EXPECT_EQ(ibv_resize_cq(receive_cq.get(), entries), 0);
    }
  });
  for (int i = 0; i < kResizeRounds; i++) {
    // At another moment of the resizing in each round.
    const auto moment = std::chrono::steady_clock::now() + i % 64 * std::chrono::nanoseconds(250);
    while (std::chrono::steady_clock::now() < moment) {
    }
    ASSERT_EQ(ibv_req_notify_cq(receive_cq.get(), i % 2), 0);
    ASSERT_NO_FATAL_FAILURE(Send(IBV_SEND_SOLICITED));
    if (!EventComes(kPatience_ms)) {
      ADD_FAILURE() << "the event of round " << i << " is lost";
      break;
    }
    // Seldom, because a poll must wait for the queue's lock.
    std::array<ibv_wc, 32> done{};
    if (i % 32 == 31) {
      ASSERT_EQ(ibv_poll_cq(receive_cq.get(), 32, done.data()), 32);
    }
  }
  is_over = true;
}

// Sends of one size that were not polled yet, from slab, bounce buffer or copy offer.
class CqResize : public LoopbackTest, public testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint64_t kSends = 40;
  void SendAll() {
    ASSERT_NO_FATAL_FAILURE(Connect({64, 64, 1, 1, 0}));
    ibv_sge piece{data.address(), GetParam(), mr->lkey};
    for (uint64_t i = 0; i < kSends; ++i) {
      ibv_recv_wr receive{i, nullptr, &piece, 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(b.get(), &receive, &bad), 0);
    }
    for (uint64_t i = 0; i < kSends; ++i) {
      ibv_send_wr send{};
      send.wr_id = 100 + i;
      send.sg_list = &piece;
      send.num_sge = 1;
      send.opcode = IBV_WR_SEND;
      send.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(a.get(), &send, &bad), 0);
    }
  }
  void ExpectAllInOrder(ibv_cq* cq, uint64_t first) {
    for (uint64_t i = 0; i < kSends; ++i) {
      const Completion one = PollOne(cq);
      ASSERT_TRUE(one.found) << i;
      EXPECT_EQ(one.wc.status, IBV_WC_SUCCESS) << i;
      EXPECT_EQ(one.wc.wr_id, first + i);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, CqResize, testing::Values(0, 1, 256, 257, 4095, 4096),
                         testing::PrintToStringParamName());

// The device has completed the sends when ibv_post_send returns.
TEST_P(CqResize, BelowTheCompletionsOfPostedSendsIsRefused) {
  ASSERT_NO_FATAL_FAILURE(SendAll());
  EXPECT_EQ(ibv_resize_cq(send_cq.get(), static_cast<int>(kSends) - 1), EINVAL);
  EXPECT_EQ(send_cq->cqe, 255);
  ASSERT_NO_FATAL_FAILURE(ExpectAllInOrder(send_cq.get(), 100));
  EXPECT_EQ(ibv_resize_cq(send_cq.get(), 1), 0);
}

TEST_P(CqResize, ToTheirNumberKeepsThem) {
  ASSERT_NO_FATAL_FAILURE(SendAll());
  ASSERT_EQ(ibv_resize_cq(send_cq.get(), kSends), 0);
  ASSERT_EQ(ibv_resize_cq(receive_cq.get(), kSends), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectAllInOrder(send_cq.get(), 100));
  ASSERT_NO_FATAL_FAILURE(ExpectAllInOrder(receive_cq.get(), 0));
}

class CqOverrun : public LoopbackTest {};

// Seven completions fit. The eighth takes the QP to ERR, and the flushed receives are lost as well.
TEST_F(CqOverrun, EachLostCompletionGivesCqError) {
  ASSERT_NO_FATAL_FAILURE(Connect({32, 32, 1, 1, 0}, nullptr, 4));
  ASSERT_EQ(receive_cq->cqe, 7);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(PostReceive(b.get(), i), 0);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(PostSend(a.get(), i, 0), 0);
  pollfd waiting{context->async_fd, POLLIN, 0};
  for (int i = 0; i < 16 - 7; ++i) {
    ASSERT_EQ(poll(&waiting, 1, kPatience_ms), 1) << i;
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    ibv_ack_async_event(&event);
  }
  EXPECT_EQ(poll(&waiting, 1, kQuiet_ms), 0);
}

TEST_F(CqOverrun, GivesCqErrorAndTakesTheResponderDown) {
  ASSERT_NO_FATAL_FAILURE(Connect({32, 32, 1, 1, 0}, nullptr, 4));
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(PostReceive(b.get(), i), 0);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(PostSend(a.get(), i, 0), 0);
  pollfd waiting{context->async_fd, POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, kPatience_ms), 1);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, receive_cq.get());
  ibv_ack_async_event(&event);
  EXPECT_EQ(StateOf(b.get()), IBV_QPS_ERR);
  // The completions that were in the queue before remain available.
  int good = 0;
  for (Completion one = PollOne(receive_cq.get()); one.found; one = PollOne(receive_cq.get(), 0))
    good += one.wc.status == IBV_WC_SUCCESS;
  EXPECT_EQ(good, receive_cq->cqe);
}

}  // namespace
}  // namespace rdma_contract
