// UC moves the given bytes and reports no errors, because it has no acknowledgements.
#include <gtest/gtest.h>

#include "tests/contract/support/transfer.h"

namespace rdma_contract {
namespace {

// Between two hosts a datagram may be lost, and UC does not retransmit it. Bursts are therefore
// small there.
std::vector<uint32_t> Sizes(ibv_mtu mtu) {
  std::vector<uint32_t> sizes = SizesAround(mtu);
  if (TwoHosts()) std::erase_if(sizes, [](uint32_t size) { return size > 16384; });
  return sizes;
}

class UcData : public testing::TestWithParam<std::tuple<ibv_mtu, ibv_wr_opcode>> {};

TEST_P(UcData, MovesEveryByteAtEverySize) {
  const auto [mtu, opcode] = GetParam();
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote, {.type = IBV_QPT_UC}, {.mtu = mtu});
  for (const uint32_t size : Sizes(mtu)) {
    SCOPED_TRACE(size);
    ResetArena();
    const Buffer source = Allocate(size + 1), sink = Allocate(size + 1), last = Allocate(8);
    const Region from = local.Register(source), to = remote.Register(sink),
                 l = remote.Register(last);
    FillPattern(source.bytes(), size);
    WorkRequest receive{.wr_id = 1}, request{.wr_id = 2,
                                             .opcode = opcode,
                                             .imm = 77,
                                             .remote_address = sink.address(),
                                             .rkey = to.rkey};
    if (TakesAReceive(opcode)) {
      if (opcode != IBV_WR_RDMA_WRITE_WITH_IMM) receive.Add(sink.address(), size, to.lkey);
      ASSERT_EQ(remote.PostReceive(pair.remote, receive), 0);
    }
    request.Add(source.address(), size, from.lkey);
    ASSERT_EQ(local.PostSend(pair.local, request), 0);
    const Completion sent = local.Poll(pair.local, Queue::kSend);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
    if (!TakesAReceive(opcode)) {
      // A later message shows that it has arrived, because packets keep their order.
      ASSERT_EQ(remote.PostReceive(pair.remote, ReceiveInto(3, last, l)), 0);
      ASSERT_EQ(
          local.PostSend(pair.local, WorkRequest{.wr_id = 4}.Add(source.address(), 1, from.lkey)),
          0);
      ASSERT_TRUE(local.Poll(pair.local, Queue::kSend).found);
    }
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    if (TakesAReceive(opcode)) {
      EXPECT_EQ(received.wc.byte_len, size);
    }
    if (HasImmediate(opcode)) {
      EXPECT_EQ(ntohl(received.wc.imm_data), 77u);
    }
    EXPECT_EQ(FirstDifference(sink.bytes().first(size), size), -1);
    EXPECT_EQ(sink.data[size], 0);
    EXPECT_TRUE(GuardsIntact());
    ASSERT_EQ(local.Deregister(from.index), 0);
    ASSERT_EQ(remote.Deregister(to.index), 0);
    ASSERT_EQ(remote.Deregister(l.index), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, UcData,
                         testing::Combine(testing::Values(IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024,
                                                          IBV_MTU_2048, IBV_MTU_4096),
                                          testing::Values(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                          IBV_WR_RDMA_WRITE,
                                                          IBV_WR_RDMA_WRITE_WITH_IMM)),
                         [](const auto& info) {
                           return "Mtu" + std::to_string(128 << std::get<0>(info.param)) +
                                  OperationName(std::get<1>(info.param));
                         });

class Uc : public testing::Test {
 protected:
  void SetUp() override {
    pair = ConnectPair(local, remote, {.type = IBV_QPT_UC});
    source = Allocate(1000);
    sink = Allocate(1000);
    from = local.Register(source);
    to = remote.Register(sink);
  }
  Completion Post(const WorkRequest& request) {
    EXPECT_EQ(local.PostSend(pair.local, request), 0);
    return local.Poll(pair.local, Queue::kSend);
  }
  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
  Pair pair;
  Buffer source, sink;
  Region from, to;
};

TEST_F(Uc, AMessageWithoutAReceiveIsLostWithoutAWord) {
  EXPECT_EQ(Post(SendOf(1, source, from)).wc.status, IBV_WC_SUCCESS);
  EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);  // has arrived now
  ASSERT_EQ(remote.PostReceive(pair.remote, ReceiveInto(9, sink, to)), 0);
  EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);
  EXPECT_EQ(Post(SendOf(2, source, from)).wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(remote.Poll(pair.remote, Queue::kReceive).wc.wr_id, 9u);
}

TEST_F(Uc, ABadRemoteKeyIsDroppedWithoutAWord) {
  EXPECT_EQ(Post(WriteTo(1, source, from, sink.address(), to.rkey ^ 0x5500)).wc.status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_RTS);
  EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_RTS);
  EXPECT_EQ(Post(WriteTo(2, source, from, sink.address(), to.rkey)).wc.status, IBV_WC_SUCCESS);
}

TEST_F(Uc, KnowsNoReads) {
  EXPECT_EQ(Post(ReadFrom(1, source, from, sink.address(), to.rkey)).wc.status,
            IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_ERR);
}

TEST_F(Uc, AReceiveTooSmallFailsTheReceiverAlone) {
  ASSERT_EQ(
      remote.PostReceive(pair.remote, WorkRequest{.wr_id = 5}.Add(sink.address(), 64, to.lkey)), 0);
  EXPECT_EQ(Post(SendOf(1, source, from)).wc.status, IBV_WC_SUCCESS);
  const Completion received = remote.Poll(pair.remote, Queue::kReceive);
  EXPECT_EQ(received.wc.status, IBV_WC_LOC_QP_OP_ERR) << Describe(received);
  EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_ERR);
  EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_RTS);
}

}  // namespace
}  // namespace rdma_contract
