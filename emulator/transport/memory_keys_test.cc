// Requests that invalidate or create keys: SEND with invalidate, LOCAL_INV, BIND_MW (IBTA 10.6.7;
// rxe_mw.c, rxe_mr.c), between hosts and inside one.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class MemoryKeys : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                              IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND;

  MemoryKeys() : world(GetParam()) {
    x = world.Make(world.a, IBV_QPT_RC, 16384);
    y = world.Make(world.b(), IBV_QPT_RC, 16384);
    FillPattern(x.buffer, 1);
    world.Join(x, y);
  }
  MemoryRegion* Register(Endpoint& e, int access = kAll) {
    return *e.node->verbs.RegMr(kGroup, kProcess,
                                {e.node->pd->handle, access, e.At(0), e.buffer.size(), e.At(0)});
  }
  static rxe_send_wr Invalidate(ibv_wr_opcode opcode, uint64_t wr_id, uint32_t rkey) {
    rxe_send_wr wr = SendWr(opcode, wr_id);
    wr.ex.invalidate_rkey = rkey;
    return wr;
  }
  static rxe_send_wr Bind(uint64_t wr_id, const MemoryWindow& window, uint32_t rkey,
                          const MemoryRegion& region, uint64_t address, uint64_t length,
                          int access) {
    rxe_send_wr wr = SendWr(IBV_WR_BIND_MW, wr_id);
    wr.wr.mw.addr = address;
    wr.wr.mw.length = length;
    wr.wr.mw.mr_lkey = region.lkey;
    wr.wr.mw.mw_rkey = window.rkey;
    wr.wr.mw.rkey = rkey;
    wr.wr.mw.access = static_cast<uint32_t>(access);
    return wr;
  }
  // Returns the status of one request of x.
  uint32_t StatusOf(Endpoint& e, const rxe_send_wr& wr, const std::vector<rxe_sge>& sges) {
    e.Post(wr, sges);
    world.Ring(e);
    world.Run();
    const auto sent = e.Sent();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? ~0u : sent[0].status;
  }
  uint32_t WriteStatus(uint32_t rkey, uint64_t address, uint32_t length = 64) {
    rxe_send_wr wr = SendWr(IBV_WR_RDMA_WRITE, 1);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    return StatusOf(x, wr, {x.Sge(0, length)});
  }
  static constexpr uint32_t kOk = IBV_WC_SUCCESS;

  World world;
  Endpoint x, y;
};

// IBTA 9.4.1.1: the key is invalid after the receive's completion, which contains the key.
TEST_P(MemoryKeys, ASendWithInvalidateWithdrawsTheKeyAndSaysSo) {
  MemoryRegion* region = Register(y);
  EXPECT_EQ(WriteStatus(region->rkey, y.At(0)), kOk);
  y.PostReceive(4, {y.Sge(1024, 64)});
  EXPECT_EQ(StatusOf(x, Invalidate(IBV_WR_SEND_WITH_INV, 1, region->rkey), {x.Sge(0, 16)}), kOk);
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wc_flags, uint32_t{IBV_WC_GRH | IBV_WC_WITH_INV});
  EXPECT_EQ(received[0].ex.invalidate_rkey, region->rkey);
  EXPECT_EQ(received[0].byte_len, 16u);
  EXPECT_EQ(WriteStatus(region->rkey, y.At(0)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

// Only the remote key was invalidated. The local key is still valid.
TEST_P(MemoryKeys, AnInvalidatedRegionServesItsOwnProgramStill) {
  MemoryRegion* region = Register(y);
  y.PostReceive(4, {y.Sge(1024, 64)});
  StatusOf(x, Invalidate(IBV_WR_SEND_WITH_INV, 1, region->rkey), {x.Sge(0, 16)});
  y.Received();
  y.PostReceive(5, {{y.At(2048), 64, region->lkey}});
  EXPECT_EQ(StatusOf(x, SendWr(IBV_WR_SEND, 2), {x.Sge(0, 16)}), kOk);
  EXPECT_EQ(y.Received()[0].status, kOk);
}

// rxe's RESPST_ERR_INVALIDATE_RKEY (class J): the sender gets an ACK, the receiver an error.
TEST_P(MemoryKeys, AnInvalidateOfAKeyThatIsNoneFailsTheReceiver) {
  y.PostReceive(4, {y.Sge(1024, 64)});
  y.PostReceive(5, {y.Sge(1024, 64)});
  EXPECT_EQ(StatusOf(x, Invalidate(IBV_WR_SEND_WITH_INV, 1, y.mr->rkey ^ 0x4400), {x.Sge(0, 16)}),
            kOk);
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_REM_INV_REQ_ERR});
  EXPECT_EQ(received[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
}

TEST_P(MemoryKeys, ALocalInvalidateWithdrawsTheKey) {
  MemoryRegion* region = Register(y);
  EXPECT_EQ(StatusOf(y, Invalidate(IBV_WR_LOCAL_INV, 1, region->rkey), {}), kOk);
  EXPECT_EQ(WriteStatus(region->rkey, y.At(0)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

TEST_P(MemoryKeys, ALocalInvalidateOfAKeyThatIsNoneFailsTheQueue) {
  y.Post(Invalidate(IBV_WR_LOCAL_INV, 1, 0x12345600), {});
  y.Post(SendWr(IBV_WR_SEND, 2), {y.Sge(0, 8)});
  world.Ring(y);
  world.Run();
  const auto sent = y.Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
}

// In rxe, LOCAL_INV waits for all requests before it, such as a READ into the region.
TEST_P(MemoryKeys, ALocalInvalidateWaitsForWhatStandsBeforeIt) {
  MemoryRegion* region = Register(x);
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {{x.At(4096), 3000, region->lkey}});
  x.Post(Invalidate(IBV_WR_LOCAL_INV, 2, region->rkey), {});
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 3, y, 8192), {x.Sge(0, 100)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].wr_id, i + 1);
    EXPECT_EQ(sent[i].status, kOk);
  }
  EXPECT_EQ(sent[1].opcode, uint32_t{IBV_WC_LOCAL_INV});
}

// IBTA 10.6.7.2.2: a window gives its own rights to its own bytes.
TEST_P(MemoryKeys, AWindowOfType1OpensItsBytesUntilItIsBoundToNothing) {
  MemoryRegion* region = Register(y);
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_1);
  const uint32_t key = (window->rkey & ~0xffu) | ((window->rkey + 1) & 0xff);
  EXPECT_EQ(
      StatusOf(y, Bind(1, *window, key, *region, y.At(1024), 512, IBV_ACCESS_REMOTE_WRITE), {}),
      kOk);
  EXPECT_EQ(window->rkey, key);
  EXPECT_EQ(WriteStatus(key, y.At(1024), 512), kOk);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 512, y.buffer.begin() + 1024));
  EXPECT_EQ(StatusOf(y, Bind(2, *window, key + 1, *region, 0, 0, 0), {}), kOk);
  EXPECT_EQ(WriteStatus(key, y.At(1024)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

TEST_P(MemoryKeys, OutsideAWindowIsARemoteAccessErrorThoughTheRegionHasTheBytes) {
  MemoryRegion* region = Register(y);
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_1);
  StatusOf(y, Bind(1, *window, window->rkey + 1, *region, y.At(1024), 512, IBV_ACCESS_REMOTE_WRITE),
           {});
  EXPECT_EQ(WriteStatus(window->rkey, y.At(1024), 513), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

TEST_P(MemoryKeys, AWindowGivesNoRightThatItWasNotGiven) {
  MemoryRegion* region = Register(y);
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_1);
  StatusOf(y, Bind(1, *window, window->rkey + 1, *region, y.At(0), 512, IBV_ACCESS_REMOTE_READ),
           {});
  EXPECT_EQ(WriteStatus(window->rkey, y.At(0)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

// o10-37.2.26: a window of type 2 belongs to the QP that bound it. An invalidation from either side
// ends it.
TEST_P(MemoryKeys, AWindowOfType2EndsWithASendWithInvalidate) {
  MemoryRegion* region = Register(y);
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_2);
  const uint32_t key = (window->rkey & ~0xffu) | ((window->rkey + 1) & 0xff);
  EXPECT_EQ(StatusOf(y, Bind(1, *window, key, *region, y.At(0), 512, IBV_ACCESS_REMOTE_WRITE), {}),
            kOk);
  EXPECT_EQ(WriteStatus(key, y.At(0)), kOk);
  y.PostReceive(4, {y.Sge(4096, 64)});
  EXPECT_EQ(StatusOf(x, Invalidate(IBV_WR_SEND_WITH_INV, 1, key), {x.Sge(0, 8)}), kOk);
  EXPECT_EQ(window->region, nullptr);
  EXPECT_EQ(WriteStatus(key, y.At(0)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

TEST_P(MemoryKeys, AWindowOfType2IsNoUseOnAnotherQp) {
  Endpoint other = world.Make(*y.node, IBV_QPT_RC, 4096);
  MemoryRegion* region = Register(y);
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_2);
  Endpoint peer = world.Make(world.a, IBV_QPT_RC, 4096);
  world.Join(peer, other);
  EXPECT_EQ(
      StatusOf(other,
               Bind(1, *window, window->rkey + 1, *region, y.At(0), 512, IBV_ACCESS_REMOTE_WRITE),
               {}),
      kOk);
  EXPECT_EQ(WriteStatus(window->rkey, y.At(0)), uint32_t{IBV_WC_REM_ACCESS_ERR});
}

TEST_P(MemoryKeys, ABindThatIsNotAllowedIsABindError) {
  MemoryRegion* closed = Register(y, IBV_ACCESS_LOCAL_WRITE);  // without MW_BIND
  MemoryWindow* window = *y.node->verbs.AllocMw(kGroup, y.node->pd->handle, IBV_MW_TYPE_1);
  EXPECT_EQ(
      StatusOf(y,
               Bind(1, *window, window->rkey + 1, *closed, y.At(0), 512, IBV_ACCESS_REMOTE_WRITE),
               {}),
      uint32_t{IBV_WC_MW_BIND_ERR});
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
}

INSTANTIATE_TEST_SUITE_P(Hosts, MemoryKeys, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
