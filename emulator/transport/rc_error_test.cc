// Errors on RC, with the statuses and states that were measured on rxe.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class RcError : public ::testing::TestWithParam<bool> {
 protected:
  RcError() : world(GetParam()) {
    x = world.Make(world.a, IBV_QPT_RC, 16384);
    y = world.Make(world.b(), IBV_QPT_RC, 16384);
  }
  // Posts the request and one after it. Expects the status, a flush, and these final states.
  void Expect(rxe_send_wr wr, std::vector<rxe_sge> sges, ibv_wc_status status, ibv_qp_state at_y) {
    wr.wr_id = 1;
    x.Post(wr, std::move(sges));
    x.Post(SendWr(IBV_WR_SEND, 2, 0), {x.Sge(0, 8)});
    x.PostReceive(300, {x.Sge(0, 64)});
    world.Ring(x);
    world.Run();
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].status, uint32_t{status});
    EXPECT_EQ(sent[0].wr_id, 1u);
    EXPECT_EQ(sent[0].opcode + sent[0].byte_len + sent[0].vendor_err, 0u);
    EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
    const auto received = x.Received();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
    EXPECT_EQ(y.qp->state(), at_y);
  }

  World world;
  Endpoint x, y;
};

TEST_P(RcError, ABadRkeyIsARemoteAccessError) {
  world.Join(x, y);
  rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0);
  wr.wr.rdma.rkey ^= 0x10000;
  Expect(wr, {x.Sge(0, 64)}, IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR);
}

// IBTA 9.7: the READ was executed before the WRITE that is refused, and the requester learns both.
TEST_P(RcError, AReadBeforeARefusedRequestSucceeds) {
  for (const uint32_t bytes : {1u, 240u, 1024u, 1025u, 8000u}) {
    SCOPED_TRACE(bytes);
    x = world.Make(world.a, IBV_QPT_RC, 16384);
    y = world.Make(world.b(), IBV_QPT_RC, 16384);
    world.Join(x, y);
    FillPattern(y.buffer, bytes);
    rxe_send_wr refused = RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 0);
    refused.wr.rdma.rkey ^= 0x10000;
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, bytes)});
    x.Post(refused, {x.Sge(0, 64)});
    x.Post(SendWr(IBV_WR_SEND, 3), {x.Sge(0, 8)});
    world.Ring(x);
    world.Run();
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_REM_ACCESS_ERR});
    EXPECT_EQ(sent[2].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + bytes, y.buffer.begin()));
  }
}

TEST_P(RcError, AReadOutOfBoundsIsARemoteAccessError) {
  world.Join(x, y);
  Expect(RdmaWr(IBV_WR_RDMA_READ, 1, y, 16384 - 32), {x.Sge(0, 64)}, IBV_WC_REM_ACCESS_ERR,
         IBV_QPS_ERR);
}

TEST_P(RcError, AQpWithoutRightsAnswersInvalidRequest) {
  Link link;
  link.access = 0;
  world.Join(x, y, link);
  Expect(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, y, 0, 1), {x.Sge(0, 8)}, IBV_WC_REM_INV_REQ_ERR,
         IBV_QPS_ERR);
}

TEST_P(RcError, ASendWithABadLkeyIsALocalQpOperationError) {
  world.Join(x, y);
  rxe_sge sge = x.Sge(0, 64);
  sge.lkey ^= 0x10000;
  Expect(SendWr(IBV_WR_SEND, 1), {sge}, IBV_WC_LOC_QP_OP_ERR, IBV_QPS_RTS);
}

TEST_P(RcError, ASendOutOfItsRegionIsALocalProtectionError) {
  world.Join(x, y);
  Expect(SendWr(IBV_WR_SEND, 1), {x.Sge(16384 - 32, 64)}, IBV_WC_LOC_PROT_ERR, IBV_QPS_RTS);
}

TEST_P(RcError, AReadIntoABadLkeyIsALocalProtectionError) {
  world.Join(x, y);
  rxe_sge sge = x.Sge(0, 64);
  sge.lkey ^= 0x10000;
  Expect(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {sge}, IBV_WC_LOC_PROT_ERR, IBV_QPS_RTS);
}

TEST_P(RcError, AReceiveTooSmallIsARemoteOperationError) {
  world.Join(x, y);
  y.PostReceive(200, {y.Sge(0, 64)});
  y.PostReceive(201, {y.Sge(0, 64)});
  Expect(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 5000)}, IBV_WC_REM_OP_ERR, IBV_QPS_ERR);
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
  EXPECT_EQ(received[0].wr_id, 200u);
  EXPECT_EQ(received[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
}

TEST_P(RcError, AnUnknownOpcodeFailsAfterWhatWasPostedBefore) {
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 64)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  x.Post(SendWr(static_cast<ibv_wr_opcode>(77), 2), {});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
}

TEST_P(RcError, ZeroBytesWithABadRkeySucceed) {
  world.Join(x, y);
  rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0);
  wr.wr.rdma.rkey = 0;
  x.Post(wr, {});
  wr.opcode = IBV_WR_RDMA_READ;
  x.Post(wr, {});
  world.Ring(x);
  world.Run();
  for (const ib_uverbs_wc& wc : x.Sent()) EXPECT_EQ(wc.status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(y.qp->state(), IBV_QPS_RTS);
}

TEST_P(RcError, AReceiveMayClaimMoreThanItsRegionHas) {
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(16000, 4096)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_SUCCESS});
}

TEST_P(RcError, EnteringErrFlushesInOrderUnsignalledToo) {
  world.Join(x, y);
  for (uint64_t i = 0; i < 5; ++i) x.Post(SendWr(IBV_WR_SEND, i, 0), {x.Sge(0, 8)});
  for (uint64_t i = 10; i < 13; ++i) x.PostReceive(i, {x.Sge(0, 8)});
  world.SetState(x, IBV_QPS_ERR);
  const auto sent = x.Sent(), received = x.Received();
  ASSERT_EQ(sent.size(), 5u);
  ASSERT_EQ(received.size(), 3u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(sent[i].wr_id, i);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].wr_id, i + 10);
  // Later posts: sends are flushed, receives never (measured).
  x.Post(SendWr(IBV_WR_SEND, 20, 0), {x.Sge(0, 8)});
  x.PostReceive(21, {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
  EXPECT_TRUE(x.Received().empty());
}

TEST_P(RcError, AnOverrunReceiveQueueTakesItsQpIntoErr) {
  y = world.Make(world.b(), IBV_QPT_RC, 4096, 63, 7);
  Link link;
  link.retry_count = 1;
  world.Join(x, y, link);
  for (uint64_t i = 0; i < 9; ++i) {
    y.PostReceive(i, {y.Sge(0, 8)});
    x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(0, 8)});
  }
  world.Ring(x);
  world.Run();
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(y.Received().size(), 7u);
}

TEST_P(RcError, APeerThatIsGoneCostsTheRetries) {
  world.Join(x, y);
  ASSERT_TRUE(world.b().verbs.DestroyQp(world.now, kGroup, y.qp->handle).has_value());
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
  EXPECT_EQ(world.b().engine.counters().dropped_no_qp, 4u);
}

TEST_P(RcError, MemoryThatVanishedAtTheSenderIsALocalProtectionError) {
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 64)});
  world.a.memory.holes.push_back({{x.At(0), 64}});
  Expect(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 64)}, IBV_WC_LOC_PROT_ERR, IBV_QPS_RTS);
}

TEST_P(RcError, MemoryThatVanishedAtTheReceiverIsARemoteAccessError) {
  world.Join(x, y);
  world.b().memory.holes.push_back({{y.At(0), 64}});
  Expect(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, 64)}, IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR);
}

TEST_P(RcError, ADrainedSendQueueSaysSoAndWaits) {
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 64)});
  y.PostReceive(2, {y.Sge(0, 64)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  world.Ring(x);
  world.a.engine.Work(world.now);  // in transit
  world.SetState(x, IBV_QPS_SQD);
  x.Post(SendWr(IBV_WR_SEND, 2), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
  ASSERT_EQ(world.a.context->async_events.size(), 1u);
  EXPECT_EQ(world.a.context->async_events[0].type, IBV_EVENT_SQ_DRAINED);
  world.SetState(x, IBV_QPS_RTS);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Hosts, RcError, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
