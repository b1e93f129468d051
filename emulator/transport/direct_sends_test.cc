// SENDs between queue pairs of one host, which the host executes directly (direct_sends.h) or by
// its queue of trains. Programs cannot tell which.
#include "emulator/transport/direct_sends.h"

#include <cstring>
#include <string>
#include <vector>

#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

// The parameter says whether the host may execute SENDs directly.
class DirectSendsTest : public ::testing::TestWithParam<bool> {
 protected:
  DirectSendsTest() : world(/*local=*/true) {
    world.a.verbs.ProcessJoined(kGroup, kProcess);
    world.a.permits_execution = GetParam();
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.a, IBV_QPT_RC, 4096);
    world.Join(x, y);
    world.Run();
  }
  void PostInline(Endpoint& from, uint64_t wr_id, uint32_t bytes,
                  ibv_wr_opcode opcode = IBV_WR_SEND) {
    rxe_send_wr wr = SendWr(opcode, wr_id);
    wr.send_flags |= IBV_SEND_INLINE;
    std::memset(from.buffer.data(), static_cast<int>(wr_id), bytes);
    from.Post(wr, {from.Sge(0, bytes)});
    world.Ring(from);
  }
  void PostReceives(Endpoint& to, uint64_t first, uint64_t count, uint32_t bytes = 64) {
    for (uint64_t i = first; i < first + count; i++) to.PostReceive(i, {to.Sge(i * 64, bytes)});
  }
  void ExpectAll(const std::vector<ib_uverbs_wc>& all, uint64_t first, uint64_t count) {
    ASSERT_EQ(all.size(), count);
    for (uint64_t i = 0; i < count; i++) {
      EXPECT_EQ(all[i].wr_id, first + i);
      EXPECT_EQ(all[i].status, uint32_t{IBV_WC_SUCCESS});
    }
  }
  char ByteAt(size_t receive) {
    world.a.engine.Quiesce(RegionPayloads{*y.mr, false});
    return static_cast<char>(y.buffer[receive * 64]);
  }

  World world;
  Endpoint x, y;
};
INSTANTIATE_TEST_SUITE_P(All, DirectSendsTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Direct" : "ByTrains"; });

// design.md, decision 35: a SEND of at most 256 bytes is complete after one round of work. It is
// not delivered before Engine::Deliver, because the host then knows which programs have ended.
TEST_P(DirectSendsTest, OnlySmallSendsCompleteInOneRound) {
  for (const auto& [bytes, is_small] :
       {std::pair{0u, true}, {1u, true}, {256u, true}, {257u, false}}) {
    SCOPED_TRACE(bytes);
    y.PostReceive(1, {y.Sge(0, 512)});
    x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, bytes)});
    auto* const wqe =
        x.qp->send_ring.SlotAs<SendEntry>(x.qp->send_ring.Previous(x.qp->send_ring.Producer()));
    if (is_small) wqe->state = kPayloadTaken;  // as ibv_post_send does
    world.Ring(x);
    EXPECT_TRUE(world.a.engine.Take(world.now));
    EXPECT_TRUE(y.Received().empty());
    (void)world.a.engine.Deliver(world.now);
    EXPECT_EQ(x.Sent().size(), GetParam() && is_small ? 1u : 0u);
    world.Run();
    (void)x.Sent();
    EXPECT_EQ(y.Received().size(), 1u);
  }
}

// ibv_post_send(3): requests of one QP are executed in the order of posting.
TEST_P(DirectSendsTest, KeepTheirOrderAmongOtherRequests) {
  PostReceives(y, 0, 20);
  for (uint64_t i = 0; i < 20; i++) {
    if (i % 3 == 2) {
      x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(0, 32)});  // not taken at post
    } else {
      PostInline(x, i, 32, i % 2 == 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM);
    }
    if (i % 5 == 4) x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 100, y, 2048), {x.Sge(0, 1024)});
  }
  world.Ring(x);
  world.Run();
  EXPECT_EQ(ByteAt(19), 19);
  ExpectAll(y.Received(), 0, 20);
  auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 24u);
  std::erase_if(sent, [](const ib_uverbs_wc& wc) { return wc.wr_id == 100; });
  ExpectAll(sent, 0, 20);
}

// The host looks which programs have ended between Engine::Take and Engine::Deliver. What was
// posted afterwards waits for the next look.
TEST_P(DirectSendsTest, AreDeliveredOnlyIfTheyWerePostedBeforeTake) {
  PostReceives(y, 0, 4);
  PostInline(x, 0, 16);
  PostInline(x, 1, 16);
  (void)world.a.engine.Take(world.now);
  PostInline(x, 2, 16);
  (void)world.a.engine.Deliver(world.now);
  ExpectAll(y.Received(), 0, 2);
  world.Run();
  ExpectAll(y.Received(), 2, 1);
  ExpectAll(x.Sent(), 0, 3);
}

// A queue pair that was noted may be gone, or have begun another life.
TEST_P(DirectSendsTest, EndWithTheirQueuePair) {
  PostReceives(y, 0, 4);
  PostInline(x, 0, 16);
  (void)world.a.engine.Take(world.now);
  world.SetState(x, IBV_QPS_RESET);
  (void)world.a.engine.Deliver(world.now);
  EXPECT_TRUE(y.Received().empty());
  world.SetState(y, IBV_QPS_RESET);
  world.Join(x, y);
  PostReceives(y, 4, 1);
  PostInline(x, 1, 16);
  (void)world.a.engine.Take(world.now);
  ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, x.qp->handle).has_value());
  world.Run();
}

// IBTA 9.7.5.2.8: a SEND without a receive waits for one.
TEST_P(DirectSendsTest, WaitForAReceive) {
  PostReceives(y, 0, 2);
  for (uint64_t i = 0; i < 5; i++) PostInline(x, i, 16);
  world.Settle();
  ExpectAll(y.Received(), 0, 2);
  PostReceives(y, 2, 3);
  world.Run();
  ExpectAll(y.Received(), 2, 3);
  ExpectAll(x.Sent(), 0, 5);
  EXPECT_GT(world.a.engine.counters().rnr_naks, 0u);
  PostReceives(y, 5, 1);
  PostInline(x, 5, 16);
  world.Run();
  ExpectAll(y.Received(), 5, 1);
}

// IBTA 9.7.5.1.6: a message that does not fit its receive fails both requests.
TEST_P(DirectSendsTest, FailInTheSameWay) {
  PostReceives(y, 0, 1, 16);
  PostReceives(y, 1, 1);
  PostInline(x, 0, 17);
  PostInline(x, 1, 1);
  world.Run();
  const auto sent = x.Sent(), received = y.Received();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_REM_OP_ERR});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
  EXPECT_EQ(received[0].wr_id, 0u);
  EXPECT_EQ(received[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
}

// rdma_rxe gathers by the key: a SEND with the key of another PD fails.
TEST_P(DirectSendsTest, CheckTheKeyOfAPayloadThatWasTakenAtPost) {
  PostReceives(y, 0, 1);
  rxe_sge sge = x.Sge(0, 16);
  sge.lkey ^= 0x100;
  x.Post(SendWr(IBV_WR_SEND, 1), {sge});
  x.qp->send_ring.SlotAs<SendEntry>(x.qp->send_ring.Consumer())->state = kPayloadTaken;
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_NE(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_TRUE(y.Received().empty() || y.qp->state() == IBV_QPS_ERR);
}

// IBTA 9.7.1: both ends have counted the same PSNs, so either way may follow the other one. The
// counters of the port show packets in both cases.
TEST_P(DirectSendsTest, CountAsPackets) {
  PostReceives(y, 0, 4);
  const PortCounters before = x.qp->device->counters;
  for (uint64_t i = 0; i < 4; i++) {
    world.a.permits_execution = GetParam() && i % 2 == 0;
    PostInline(x, i, 16);
    world.Run();
  }
  ExpectAll(y.Received(), 0, 4);
  ExpectAll(x.Sent(), 0, 4);
  const PortCounters& after = x.qp->device->counters;
  EXPECT_EQ(after.rdma_sends - before.rdma_sends, 4u);
  EXPECT_EQ(after.rdma_recvs - before.rdma_recvs, 4u);
  EXPECT_EQ(after.sent_pkts - before.sent_pkts, 8u);
  EXPECT_EQ(after.rcvd_pkts - before.rcvd_pkts, 8u);
  EXPECT_EQ(world.a.engine.counters().local_packets, 8u);
  EXPECT_EQ(world.a.engine.counters().messages_sent, 4u);
  EXPECT_EQ(world.a.engine.counters().bytes_sent, 64u);
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

// rdma_rxe sends no acknowledgement of a message whose completion found no room
// (RESPST_ERR_CQ_OVERFLOW).
TEST_P(DirectSendsTest, OverrunTheReceiversQueueInTheSameWay) {
  y = world.Make(world.a, IBV_QPT_RC, 4096, 63, /*cq_entries=*/3);
  x = world.Make(world.a, IBV_QPT_RC, 4096);
  world.Join(x, y);
  PostReceives(y, 0, 5);
  for (uint64_t i = 0; i < 5; i++) PostInline(x, i, 16);
  world.Run();
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
  ExpectAll(y.Received(), 0, 3);
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[2].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[3].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
}

}  // namespace
}  // namespace rdmaemu::transport::testing
