// Trains that wait between local QPs when one of the QPs changes. The tests use responses to an
// earlier incarnation of a QP, READ responses whose region was deregistered, and ACK timeouts.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class WaitingTrains : public ::testing::Test {
 protected:
  WaitingTrains() {
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.a, IBV_QPT_RC, 4096);
    world.Join(x, y);
    for (int i = 0; i < static_cast<int>(2 * kManyRounds); ++i)
      others.push_back(world.Make(world.a, IBV_QPT_RC, 64));
    for (size_t i = 0; i < others.size(); i += 2) world.Join(others[i], others[i + 1]);
    world.Run();
  }
  // The number of other QPs that post requests. With kOneTurnEach, all have their turn in one round
  // of work, and later trains wait for the next round. With kManyRounds, later trains wait longer.
  static constexpr size_t kOneTurnEach = 45, kManyRounds = 70;
  void FillQueue(size_t pairs) {
    for (size_t i = 0; i < 2 * pairs; i += 2) {
      for (uint64_t k = 0; k < 63; ++k) {
        others[i].Post(RdmaWr(IBV_WR_RDMA_WRITE, k, others[i + 1], 0, 0), {});
      }
      world.Ring(others[i]);
    }
  }
  void Work(int rounds) {
    for (int i = 0; i < rounds; ++i) ASSERT_TRUE(world.a.engine.Work(world.now));
  }

  World world{true};
  Endpoint x, y;
  std::vector<Endpoint> others;
};

// IBTA 10.3.1.1 (RESET): packets in transit to a QP are not for its next connection, even with the
// same numbers.
TEST_F(WaitingTrains, AnAnswerToAnEarlierLifeAcknowledgesNothing) {
  y.PostReceive(1, {y.Sge(0, 8)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  world.Ring(x);
  FillQueue(kOneTurnEach);
  Work(1);
  ASSERT_EQ(y.Received().size(), 1u);  // delivered, and its ACK waits
  ASSERT_TRUE(x.Sent().empty());
  for (Endpoint* e : {&x, &y}) world.SetState(*e, IBV_QPS_RESET);
  Link link;
  link.rnr_retry = 0;
  world.Join(x, y, link);
  x.Post(SendWr(IBV_WR_SEND, 2), {x.Sge(0, 8)});  // there is no receive for it
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RNR_RETRY_EXC_ERR});
}

// ibv_dereg_mr(3): after it has returned, the device no longer reads the memory.
TEST_F(WaitingTrains, AReadResponseDoesNotBringWhatARegionHeldAfterItsEnd) {
  for (const bool destroy : {false, true}) {
    for (int rounds = 1; rounds < 8; ++rounds) {
      SCOPED_TRACE(std::to_string(rounds) + (destroy ? ", QP destroyed" : ", region gone"));
      y = world.Make(world.a, IBV_QPT_RC, 4096);
      x = world.Make(world.a, IBV_QPT_RC, 4096);
      world.Join(x, y);
      world.Run();
      x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, 2048)});
      world.Ring(x);
      FillQueue(kManyRounds);
      Work(rounds);
      if (destroy) {
        ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, y.qp->handle).has_value());
      }
      ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, y.mr->handle).has_value());
      std::ranges::fill(y.buffer, std::byte{0x55});  // a secret, in freed memory
      world.Run();
      ASSERT_EQ(x.Sent().size(), 1u);
      EXPECT_TRUE(std::ranges::find(x.buffer, std::byte{0x55}) == x.buffer.end());
    }
  }
}

// IBTA 9.7.6.1.3 counts retries of lost packets. On a host that is slower than the timeout, nothing
// is lost: the requests and their answers wait in its queue.
TEST_F(WaitingTrains, AHostThatIsSlowerThanTheTimeoutExhaustsNoRetries) {
  Link link;
  link.retry_count = 1;
  x = world.Make(world.a, IBV_QPT_RC, 64);
  y = world.Make(world.a, IBV_QPT_RC, 64);
  world.Join(x, y, link);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, 8)});
  world.Ring(x);
  ASSERT_TRUE(world.a.engine.Take(world.now));
  const auto let_timeouts_pass = [&] {
    for (int i = 0; i < 5; i++) {
      world.now += std::chrono::seconds(1);
      world.a.engine.Expire(world.now);
    }
  };
  let_timeouts_pass();  // the request waits
  world.a.engine.Deliver(world.now);
  let_timeouts_pass();  // its answer may wait
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

TEST_F(WaitingTrains, AQueueThatIsNeverEmptyHidesNoDeadPeer) {
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, 8)});
  ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, y.qp->handle).has_value());
  world.Ring(x);
  std::vector<ib_uverbs_wc> sent;
  for (int i = 0; i < 100 && sent.empty(); i++) {
    for (size_t k = 0; k < others.size(); k += 2) {
      others[k].Sent();
      while (!others[k].qp->send_ring.Full()) {
        others[k].Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, others[k + 1], 0, 0), {});
      }
      world.Ring(others[k]);
    }
    Work(1);
    world.now += std::chrono::seconds(1);
    world.a.engine.Expire(world.now);
    sent = x.Sent();
  }
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
}

}  // namespace
}  // namespace rdmaemu::transport::testing
