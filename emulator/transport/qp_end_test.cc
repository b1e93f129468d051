// A QP ends while its packets are in transit: drained in SQD, destroyed in every state, reset and
// connected anew, or connected to itself. No code accesses the destroyed QP, and the peer detects
// the end by its retries.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class QpEnd : public ::testing::TestWithParam<bool> {
 protected:
  QpEnd() : world(GetParam()) { Renew(); }
  void Renew() {
    x = world.Make(world.a, IBV_QPT_RC, 64 * 1024);
    y = world.Make(world.b(), IBV_QPT_RC, 64 * 1024);
    FillPattern(x.buffer, 1);
  }
  // Starts work of every kind in both directions, which a few steps leave incomplete.
  void Begin() {
    for (Endpoint* e : {&x, &y}) {
      Endpoint& to = e == &x ? y : x;
      e->PostReceive(50, {e->Sge(0, 4096)});
      e->PostReceive(51, {e->Sge(0, 4096)});
      e->Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, to, 8192), {e->Sge(0, 20'000)});
      e->Post(RdmaWr(IBV_WR_RDMA_READ, 2, to, 0), {e->Sge(32'768, 20'000)});
      e->Post(SendWr(IBV_WR_SEND, 3), {e->Sge(0, 3000)});
      e->Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, to, 0, 1), {e->Sge(60'000, 8)});
      world.Ring(*e);
    }
  }
  void Step(int steps) {
    for (int i = 0; i < steps; ++i) {
      world.a.engine.Work(world.now);
      if (!world.other) continue;
      for (auto [from, to] :
           {std::pair{&world.a, world.other.get()}, {world.other.get(), &world.a}}) {
        from->engine.Work(world.now);
        for (int k = 0; k < 7 && !from->out.empty(); ++k) {
          const Datagram datagram = std::move(from->out.front());
          from->out.pop_front();
          to->engine.Receive(world.now, datagram.flow, *wire::Parse(datagram.bytes));
        }
      }
    }
  }
  void Destroy(Endpoint& e) {
    ASSERT_TRUE(e.node->verbs.DestroyQp(world.now, kGroup, e.qp->handle).has_value());
    e.qp = nullptr;
    std::ranges::fill(e.buffer, std::byte{0});  // the program reuses its memory
  }

  World world;
  Endpoint x, y;
};

// IBTA 10.3.1.5: a QP may be destroyed in every state. Packets to or from the QP are dropped. The
// peer's work ends after the retries.
TEST_P(QpEnd, AQpMayBeDestroyedInEveryStateWithPacketsUnderWay) {
  for (const ibv_qp_state state :
       {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR}) {
    for (const int steps : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(state) + " after " + std::to_string(steps));
      Renew();
      Link link;
      link.to_rts_b = state != IBV_QPS_RTR;
      if (state != IBV_QPS_RESET && state != IBV_QPS_INIT) {
        world.Join(x, y, link);
        Begin();
        Step(steps);
      } else {
        world.Connect(x, y, link, link.psn_a, link.psn_b, true);
        x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
        world.Ring(x);
        Step(steps);
      }
      if (state == IBV_QPS_INIT) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        world.Modify(y, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      }
      if (state == IBV_QPS_SQD || state == IBV_QPS_ERR) world.SetState(y, state);
      ASSERT_EQ(y.qp->state(), state);
      const std::vector<std::byte> read(x.buffer.begin() + 32'768, x.buffer.begin() + 52'768);
      Destroy(y);
      world.Run();
      // All posts of x have completed in order, the remaining ones after the retries.
      const auto sent = x.Sent();
      ASSERT_FALSE(sent.empty());
      EXPECT_TRUE(x.qp->send_ring.Empty());
      const auto broken = std::ranges::find_if(
          sent, [](const ib_uverbs_wc& wc) { return wc.status != IBV_WC_SUCCESS; });
      for (auto it = broken; it != sent.end(); ++it) {
        EXPECT_EQ(it->status, uint32_t{it == broken ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR});
      }
      Destroy(x);
      world.Run();
      EXPECT_TRUE(std::ranges::all_of(y.buffer, [](std::byte b) { return b == std::byte{0}; }))
          << "something was written after the end";
    }
  }
}

// IBTA 10.3.1.7 (RESET): the next connection of a QP has no state of the one before. Packets in
// transit for the old connection are dropped.
TEST_P(QpEnd, ANewConnectionIsNotTouchedByPacketsOfTheOld) {
  for (const int steps : {0, 1, 2}) {
    SCOPED_TRACE(steps);
    Renew();
    Link link;
    world.Join(x, y, link);
    Begin();
    Step(steps);
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
    link.psn_a = 0x500000;
    link.psn_b = 0xa00000;
    world.Join(x, y, link);
    std::ranges::fill(y.buffer, std::byte{0});
    y.PostReceive(70, {y.Sge(0, 64)});
    x.Post(SendWr(IBV_WR_SEND, 9), {x.Sge(0, 64)});
    world.Ring(x);
    world.Run();
    const auto sent = x.Sent(), received = y.Received();
    ASSERT_FALSE(sent.empty());
    EXPECT_EQ(sent.back().wr_id, 9u);
    EXPECT_EQ(sent.back().status, uint32_t{IBV_WC_SUCCESS});
    ASSERT_FALSE(received.empty());
    EXPECT_EQ(received.back().wr_id, 70u);
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 64, y.buffer.begin()));
    EXPECT_TRUE(std::all_of(y.buffer.begin() + 64, y.buffer.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

// IBTA 10.3.1.6 (SQD): requests that have begun are finished, others stay. Then one event is
// raised, and RTS continues.
TEST_P(QpEnd, DrainingFinishesWhatWasBegunAndKeepsTheRest) {
  world.Join(x, y);
  for (uint64_t i = 0; i < 10; ++i) {
    x.Post(RdmaWr(IBV_WR_RDMA_READ, i, y, 0), {x.Sge(0, 2000)});
  }
  world.Ring(x);
  world.a.engine.Work(world.now);  // four are in transit: max_rd_atomic
  world.SetState(x, IBV_QPS_SQD);
  EXPECT_TRUE(world.a.context->async_events.empty());
  world.Run();
  const size_t begun = x.Sent().size();
  EXPECT_GE(begun, 1u);
  EXPECT_LT(begun, 10u);
  ASSERT_EQ(world.a.context->async_events.size(), 1u);
  EXPECT_EQ(world.a.context->async_events[0].type, IBV_EVENT_SQ_DRAINED);
  world.SetState(x, IBV_QPS_RTS);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 10 - begun);
}

// SQD drains the send queue only. The QP still responds to its peer.
TEST_P(QpEnd, ADrainedQpAnswersItsPeer) {
  world.Join(x, y);
  world.SetState(x, IBV_QPS_SQD);
  x.PostReceive(1, {x.Sge(0, 4096)});
  y.Post(SendWr(IBV_WR_SEND, 1), {y.Sge(0, 3000)});
  y.Post(RdmaWr(IBV_WR_RDMA_READ, 2, x, 4096), {y.Sge(8192, 3000)});
  world.Ring(y);
  world.Run();
  const auto sent = y.Sent();
  ASSERT_EQ(sent.size(), 2u);
  for (const ib_uverbs_wc& wc : sent) EXPECT_EQ(wc.status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(x.Received().size(), 1u);
}

// A drain without responses ends as any send queue does.
TEST_P(QpEnd, ADrainThatCannotEndFailsByItsRetries) {
  world.Join(x, y);
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, 2000)});
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, y, 0), {x.Sge(0, 2000)});
  Destroy(y);
  world.Ring(x);
  world.a.engine.Work(world.now);
  world.SetState(x, IBV_QPS_SQD);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
}

INSTANTIATE_TEST_SUITE_P(Hosts, QpEnd, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

// A QP may be connected to itself. It is requester and responder of the same packets.
TEST(QpOnItself, SendsWritesReadsAndFailsInOrder) {
  World world(true);
  Endpoint x = world.Make(world.a, IBV_QPT_RC, 16384);
  FillPattern(std::span(x.buffer).first(4096), 3);
  Link link;
  link.psn_b = link.psn_a;
  world.Connect(x, x, link, link.psn_a, link.psn_a, true);
  x.PostReceive(5, {x.Sge(4096, 4096)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, x, 0), {x.Sge(8192, 3000)});
  world.Ring(x);
  world.Run();
  for (const ib_uverbs_wc& wc : x.Sent()) EXPECT_EQ(wc.status, uint32_t{IBV_WC_SUCCESS});
  rxe_send_wr bad = RdmaWr(IBV_WR_RDMA_WRITE, 3, x, 0);
  bad.wr.rdma.rkey ^= 0x700;
  x.Post(bad, {x.Sge(0, 100)});
  x.Post(SendWr(IBV_WR_SEND, 4), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 2u);
  // Its own responder fails the QP, so that even the faulty request is only flushed.
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 3000, x.buffer.begin() + 4096));
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 3000, x.buffer.begin() + 8192));
}

}  // namespace
}  // namespace rdmaemu::transport::testing
