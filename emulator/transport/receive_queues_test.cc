// The sources of receives and the wake-ups by their completions: shared receive queues with their
// limit, and solicited events (IBTA 10.2.9, 11.4.2.2; rxe's get_srq_wqe, rxe_cq_post).
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class SharedReceives : public ::testing::TestWithParam<bool> {
 protected:
  SharedReceives() : world(GetParam()) {
    srq = *world.b().verbs.CreateSrq(kGroup, {world.b().pd->handle, 63, 4, 0, 99});
    for (int i = 0; i < 2; ++i) {
      x[i] = world.Make(world.a, IBV_QPT_RC, 8192);
      y[i] = world.Make(world.b(), IBV_QPT_RC, 8192, 63, 255, srq->handle);
      world.Join(x[i], y[i]);
    }
  }
  void PostShared(uint64_t wr_id, uint32_t bytes = 64) {
    PostReceiveTo(srq->ring, wr_id, {y[0].Sge(64 * (wr_id % 64), bytes)});
  }
  void Send(int which) {
    x[which].Post(SendWr(IBV_WR_SEND, 1), {x[which].Sge(0, 16)});
    world.Ring(x[which]);
    world.Run();
  }
  size_t LimitEvents() {
    size_t count = 0;
    for (const AsyncEvent& event : world.b().context->async_events) {
      EXPECT_EQ(event.cookie, 99u);
      if (event.type == IBV_EVENT_SRQ_LIMIT_REACHED) count++;
    }
    return count;
  }

  World world;
  SharedReceiveQueue* srq;
  std::array<Endpoint, 2> x, y;
};

// IBTA 10.2.9.3: QPs take receives in the order of posting.
TEST_P(SharedReceives, ServeItsQpsInTheOrderOfPosting) {
  for (uint64_t i = 0; i < 6; ++i) PostShared(i);
  std::vector<uint64_t> taken;
  for (const int which : {0, 1, 1, 0, 1, 0}) {
    Send(which);
    const auto received = y[which].Received();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].qp_num, y[which].qp->qpn);
    taken.push_back(received[0].wr_id);
  }
  EXPECT_EQ(taken, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_P(SharedReceives, AnEmptyOneIsNotReadyAndRecovers) {
  Send(0);
  EXPECT_EQ(x[0].Sent()[0].status, uint32_t{IBV_WC_RNR_RETRY_EXC_ERR});
  PostShared(1);
  Send(1);
  EXPECT_EQ(x[1].Sent()[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(y[1].Received().size(), 1u);
}

// IBTA 10.2.9.4.2: the event is raised once, when fewer receives than the limit are left. It must
// then be armed again.
TEST_P(SharedReceives, TheLimitIsToldOnceForEachArming) {
  for (uint64_t i = 0; i < 10; ++i) PostShared(i);
  ASSERT_TRUE(world.b().verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_LIMIT, 0, 8).has_value());
  Send(0);
  Send(1);
  EXPECT_EQ(LimitEvents(), 0u);  // 8 are left, not fewer than 8
  Send(0);
  EXPECT_EQ(LimitEvents(), 1u);
  Send(1);
  EXPECT_EQ(LimitEvents(), 1u);
  EXPECT_EQ(world.b().verbs.QuerySrq(kGroup, srq->handle)->srq_limit, 0u);
  ASSERT_TRUE(world.b().verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_LIMIT, 0, 6).has_value());
  Send(0);
  EXPECT_EQ(LimitEvents(), 2u);
}

// IBTA 10.2.9: receives of an SRQ belong to all its QPs. A failing QP flushes only the receive that
// it had taken.
TEST_P(SharedReceives, AQpThatFailsLeavesThemToTheOthers) {
  for (uint64_t i = 0; i < 3; ++i) PostShared(i);
  world.SetState(y[0], IBV_QPS_ERR);
  EXPECT_TRUE(y[0].Received().empty());
  Send(1);
  EXPECT_EQ(y[1].Received()[0].wr_id, 0u);
}

INSTANTIATE_TEST_SUITE_P(Hosts, SharedReceives, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

class Solicited : public ::testing::TestWithParam<bool> {
 protected:
  Solicited() : world(GetParam()) {
    x = world.Make(world.a, IBV_QPT_RC, 8192);
    channel = *world.b().verbs.CreateChannel(kGroup, world.b().context->handle);
    y = world.MakeWithChannel(world.b(), *channel, 8192);
    world.Join(x, y);
    for (uint64_t i = 0; i < 8; ++i) y.PostReceive(i, {y.Sge(0, 4096)});
  }
  void Arm(uint32_t how) { y.recv_cq->control->armed = how; }
  void Do(rxe_send_wr wr, uint32_t bytes = 16) {
    x.Post(wr, {x.Sge(0, bytes)});
    world.Ring(x);
    world.Run();
  }
  uint64_t Events() { return world.b().counters.value(channel->counter); }
  static constexpr uint32_t kFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

  World world;
  Endpoint x, y;
  CompletionChannel* channel;
};

// IBTA 11.4.2.2: a queue armed for solicited events notifies of those and of errors only.
TEST_P(Solicited, AQueueArmedForSolicitedEventsSleepsThroughTheOthers) {
  Arm(kCqArmedSolicited);
  Do(SendWr(IBV_WR_SEND, 1));
  EXPECT_EQ(Events(), 0u);
  Do(SendWr(IBV_WR_SEND, 2, kFlags), 3000);  // the bit is in the last of three packets
  EXPECT_EQ(Events(), 1u);
  Do(SendWr(IBV_WR_SEND, 3, kFlags));  // no longer armed
  EXPECT_EQ(Events(), 1u);
  EXPECT_EQ(y.Received().size(), 3u);
}

TEST_P(Solicited, AWriteWithImmediateMaySolicit) {
  rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 1, y, 0, kFlags);
  Arm(kCqArmedSolicited);
  Do(wr);
  EXPECT_EQ(Events(), 1u);
}

// IBTA 9.2 (SE): a WRITE without immediate has no completion that could notify.
TEST_P(Solicited, AWriteSolicitsNothing) {
  Arm(kCqArmedAny);
  Do(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0, kFlags));
  EXPECT_EQ(Events(), 0u);
}

TEST_P(Solicited, AQueueArmedForAllTellsOfTheNextOne) {
  Arm(kCqArmedAny);
  Do(SendWr(IBV_WR_SEND, 1));
  EXPECT_EQ(Events(), 1u);
}

TEST_P(Solicited, AFlushIsAnErrorAndWakesASleeper) {
  Arm(kCqArmedSolicited);
  world.SetState(y, IBV_QPS_ERR);
  EXPECT_EQ(Events(), 1u);
  EXPECT_EQ(y.Received().size(), 8u);
}

INSTANTIATE_TEST_SUITE_P(Hosts, Solicited, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
