// Every operation of an RC QP moves exactly the requested bytes. The tests use sizes around each
// packet boundary, every path MTU and several scatter/gather layouts.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/contract/support/transfer.h"

namespace rdma_contract {
namespace {

class RcData : public testing::TestWithParam<std::tuple<ibv_mtu, ibv_wr_opcode>> {};

TEST_P(RcData, MovesEveryByteAtEverySize) {
  const auto [mtu, opcode] = GetParam();
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote, {}, {.mtu = mtu});
  for (const uint32_t size : SizesAround(mtu)) {
    SCOPED_TRACE(size);
    ResetArena();
    Transfer transfer(local, remote, pair, size);
    ASSERT_NO_FATAL_FAILURE(transfer.Run(opcode, {size}, {size}));
    ASSERT_NO_FATAL_FAILURE(transfer.Forget());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RcData,
    testing::Combine(testing::Values(IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048,
                                     IBV_MTU_4096),
                     testing::Values(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ)),
    [](const auto& info) {
      return "Mtu" + std::to_string(128 << std::get<0>(info.param)) +
             OperationName(std::get<1>(info.param));
    });

// The port reports a max_msg_sz of 8 MiB but does not enforce it.
class RcLargeData : public testing::TestWithParam<ibv_wr_opcode> {};

TEST_P(RcLargeData, MovesMessagesAboveMaxMsgSz) {
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote, {}, {.mtu = IBV_MTU_4096});
  for (const uint32_t size : {(8u << 20) + 1, 16u << 20}) {
    SCOPED_TRACE(size);
    ResetArena();
    Transfer transfer(local, remote, pair, size);
    ASSERT_NO_FATAL_FAILURE(transfer.Run(GetParam(), {size}, {size}));
    ASSERT_NO_FATAL_FAILURE(transfer.Forget());
  }
}

INSTANTIATE_TEST_SUITE_P(All, RcLargeData,
                         testing::Values(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                         IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ),
                         [](const auto& info) { return OperationName(info.param); });

struct Layout {
  const char* name;
  std::vector<uint32_t> local, remote;  // lengths; both sums are equal
};

class RcLayouts : public testing::TestWithParam<std::tuple<Layout, ibv_wr_opcode>> {};

TEST_P(RcLayouts, GathersAndScattersInOrder) {
  const auto& [layout, opcode] = GetParam();
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote, {.pieces = kMaxPieces}, {.mtu = IBV_MTU_256});
  const uint32_t size = std::accumulate(layout.local.begin(), layout.local.end(), 0u);
  Transfer transfer(local, remote, pair, size);
  transfer.Run(opcode, layout.local, layout.remote);
}

std::vector<Layout> Layouts() {
  std::vector<uint32_t> many(kMaxPieces);
  std::iota(many.begin(), many.end(), 1u);
  const uint32_t total = std::accumulate(many.begin(), many.end(), 0u);
  return {
      {"OneByteThenTheRest", {1, 999}, {999, 1}},
      {"ZeroLengthPieces", {0, 500, 0, 500, 0}, {250, 0, 750}},
      {"PiecesThatCrossPackets", {255, 2, 511, 232}, {257, 743}},
      {"OnlyZeroLengthPieces", {0, 0, 0}, {0}},
      {"AsManyPiecesAsTheDeviceHas", many, {total}},
      {"ScatteredToAsManyPiecesAsTheDeviceHas", {total}, many},
  };
}

INSTANTIATE_TEST_SUITE_P(All, RcLayouts,
                         testing::Combine(testing::ValuesIn(Layouts()),
                                          testing::Values(IBV_WR_SEND, IBV_WR_RDMA_WRITE,
                                                          IBV_WR_RDMA_READ)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  std::string(OperationName(std::get<1>(info.param)));
                         });

class Rc : public testing::Test {
 protected:
  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
};

TEST_F(Rc, ReceiveLargerThanTheMessageLeavesItsRestAlone) {
  const Pair pair = ConnectPair(local, remote);
  const Buffer source = Allocate(1500), sink = Allocate(4000);
  FillPattern(source.bytes(), 1);
  FillPattern(sink.bytes(), 2);
  const Region from = local.Register(source), to = remote.Register(sink);
  ASSERT_EQ(
      remote.PostReceive(pair.remote, WorkRequest{.wr_id = 1}.Add(sink.address(), 4000, to.lkey)),
      0);
  ASSERT_EQ(
      local.PostSend(pair.local, WorkRequest{.wr_id = 2}.Add(source.address(), 1500, from.lkey)),
      0);
  const Completion received = remote.Poll(pair.remote, Queue::kReceive);
  ASSERT_TRUE(received.found);
  EXPECT_EQ(received.wc.byte_len, 1500u);
  EXPECT_EQ(FirstDifference(sink.bytes().first(1500), 1), -1);
  EXPECT_EQ(FirstDifference(sink.bytes().subspan(1500), 2, 1500), -1);
}

TEST_F(Rc, InlineDataIsTakenWhenItIsPosted) {
  const Pair pair = ConnectPair(local, remote, {.inline_bytes = 256});
  const Buffer source = Allocate(256), sink = Allocate(256);
  const Region to = remote.Register(sink);
  FillPattern(source.bytes(), 3);
  ASSERT_EQ(
      remote.PostReceive(pair.remote, WorkRequest{.wr_id = 1}.Add(sink.address(), 256, to.lkey)),
      0);
  // Inline data needs no region, so the lkey is not checked.
  ASSERT_EQ(
      local.PostSend(pair.local,
                     WorkRequest{.wr_id = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}.Add(
                         source.address(), 256, 0xdead)),
      0);
  memset(source.data, 0, source.size);
  ASSERT_TRUE(remote.Poll(pair.remote, Queue::kReceive).found);
  EXPECT_EQ(FirstDifference(sink.bytes(), 3), -1);
}

TEST_F(Rc, UnsignalledWorkGivesNoCompletionButOrdersBeforeTheSignalledOne) {
  const Pair pair = ConnectPair(local, remote);
  const Buffer source = Allocate(64), sink = Allocate(64);
  const Region from = local.Register(source), to = remote.Register(sink);
  for (uint64_t i = 0; i < 4; ++i) {
    source.data[i] = static_cast<uint8_t>(i + 1);
    WorkRequest write{.wr_id = i,
                      .opcode = IBV_WR_RDMA_WRITE,
                      .flags = i == 3 ? unsigned{IBV_SEND_SIGNALED} : 0u,
                      .remote_address = sink.address() + i,
                      .rkey = to.rkey};
    ASSERT_EQ(local.PostSend(pair.local, write.Add(source.address() + i, 1, from.lkey)), 0);
  }
  const Completion done = local.Poll(pair.local, Queue::kSend);
  ASSERT_TRUE(done.found);
  EXPECT_EQ(done.wc.wr_id, 3u);
  EXPECT_EQ(sink.data[0], 1);
  EXPECT_EQ(sink.data[3], 4);
  EXPECT_FALSE(local.Poll(pair.local, Queue::kSend, kQuiet_ms).found);
}

TEST_F(Rc, SqSigAllSignalsEveryRequest) {
  const Pair pair = ConnectPair(local, remote, {.signal_all = true});
  const Buffer sink = Allocate(8);
  const Region to = remote.Register(sink);
  ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = 9,
                                                   .opcode = IBV_WR_RDMA_WRITE,
                                                   .flags = 0,
                                                   .remote_address = sink.address(),
                                                   .rkey = to.rkey}),
            0);
  const Completion done = local.Poll(pair.local, Queue::kSend);
  ASSERT_TRUE(done.found);
  EXPECT_EQ(done.wc.wr_id, 9u);
}

TEST_F(Rc, FenceHoldsASendBackUntilTheReadBeforeItIsDone) {
  const Pair pair = ConnectPair(local, remote, {}, {.mtu = IBV_MTU_256});
  const Buffer here = Allocate(65536), there = Allocate(65536), echo = Allocate(65536);
  FillPattern(there.bytes(), 5);
  const Region h = local.Register(here), t = remote.Register(there), e = remote.Register(echo);
  ASSERT_EQ(
      remote.PostReceive(pair.remote, WorkRequest{.wr_id = 1}.Add(echo.address(), 65536, e.lkey)),
      0);
  ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = 2,
                                                   .opcode = IBV_WR_RDMA_READ,
                                                   .remote_address = there.address(),
                                                   .rkey = t.rkey}
                                           .Add(here.address(), 65536, h.lkey)),
            0);
  // Sends the READ's result. Without the fence some bytes would be old.
  ASSERT_EQ(local.PostSend(pair.local,
                           WorkRequest{.wr_id = 3, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE}.Add(
                               here.address(), 65536, h.lkey)),
            0);
  ASSERT_TRUE(remote.Poll(pair.remote, Queue::kReceive).found);
  EXPECT_EQ(FirstDifference(echo.bytes(), 5), -1);
}

TEST_F(Rc, SendsArriveInTheOrderTheyWerePosted) {
  const Pair pair = ConnectPair(local, remote, {.depth = 128});
  const Buffer source = Allocate(8192), message = Allocate(100 * 4);
  const Region from = local.Register(source), m = remote.Register(message);
  for (uint32_t i = 0; i < 100; ++i)
    ASSERT_EQ(remote.PostReceive(pair.remote,
                                 WorkRequest{.wr_id = i}.Add(message.address() + 4 * i, 4, m.lkey)),
              0);
  for (uint32_t i = 0; i < 100; ++i) {
    memcpy(source.data + 4 * i, &i, 4);
    ASSERT_EQ(local.PostSend(pair.local,
                             WorkRequest{.wr_id = i}.Add(source.address() + 4 * i, 4, from.lkey)),
              0);
  }
  for (uint32_t i = 0; i < 100; ++i) {
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found) << i;
    EXPECT_EQ(received.wc.wr_id, i);
    uint32_t value;
    memcpy(&value, message.data + 4 * i, 4);
    EXPECT_EQ(value, i);
  }
  for (uint32_t i = 0; i < 100; ++i) {
    const Completion sent = local.Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(sent.found) << i;
    EXPECT_EQ(sent.wc.wr_id, i);
  }
}

// rdma_rxe sends within ibv_post_send. Posted messages must therefore be sent even if the QP ends
// at once, because nothing is retransmitted afterwards.
class RcEnds : public Rc {
 protected:
  static constexpr uint32_t kMessages = 8;

  void PostAll() {
    pair = ConnectPair(local, remote);
    const Buffer source = Allocate(kBytes), sink = Allocate(kBytes);
    from = local.Register(source);
    const Region to = remote.Register(sink);
    for (uint32_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(remote.PostReceive(pair.remote,
                                   WorkRequest{.wr_id = i}.Add(sink.address(), kBytes, to.lkey)),
                0);
    }
    for (uint32_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(local.PostSend(pair.local,
                               WorkRequest{.wr_id = i}.Add(source.address(), kBytes, from.lkey)),
                0);
    }
  }
  void AllArrive() {
    for (uint32_t i = 0; i < kMessages; ++i) {
      const Completion received = remote.Poll(pair.remote, Queue::kReceive);
      ASSERT_TRUE(received.found) << i;
      ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    }
  }
  static constexpr uint32_t kBytes = 100;
  Pair pair;
  Region from;
};

TEST_F(RcEnds, WhatWasPostedBeforeTheQueuePairWentIsSent) {
  ASSERT_NO_FATAL_FAILURE(PostAll());
  ASSERT_EQ(local.DestroyQp(pair.local), 0);
  AllArrive();
}

TEST_F(RcEnds, WhatWasPostedBeforeTheQueuePairWasTakenToErrIsSent) {
  ASSERT_NO_FATAL_FAILURE(PostAll());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(local.Modify(pair.local, attributes, IBV_QP_STATE), 0);
  AllArrive();
}

TEST_F(Rc, BothDirectionsAtOnce) {
  const Pair pair = ConnectPair(local, remote);
  const uint32_t size = 1 << 20;
  const Buffer a = Allocate(size), b = Allocate(size), a_in = Allocate(size), b_in = Allocate(size);
  FillPattern(a.bytes(), 10);
  FillPattern(b.bytes(), 11);
  const Region ra = local.Register(a), rai = local.Register(a_in), rb = remote.Register(b),
               rbi = remote.Register(b_in);
  ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = 1,
                                                   .opcode = IBV_WR_RDMA_WRITE,
                                                   .remote_address = b_in.address(),
                                                   .rkey = rbi.rkey}
                                           .Add(a.address(), size, ra.lkey)),
            0);
  ASSERT_EQ(remote.PostSend(pair.remote, WorkRequest{.wr_id = 1,
                                                     .opcode = IBV_WR_RDMA_WRITE,
                                                     .remote_address = a_in.address(),
                                                     .rkey = rai.rkey}
                                             .Add(b.address(), size, rb.lkey)),
            0);
  ASSERT_TRUE(local.Poll(pair.local, Queue::kSend).found);
  ASSERT_TRUE(remote.Poll(pair.remote, Queue::kSend).found);
  EXPECT_EQ(FirstDifference(a_in.bytes(), 11), -1);
  EXPECT_EQ(FirstDifference(b_in.bytes(), 10), -1);
}

TEST_F(Rc, MoreReadsThanTheResponderHasResourcesForAllComplete) {
  const Pair pair = ConnectPair(local, remote, {}, {.reads = 2});
  const uint32_t size = 5000;
  const Buffer there = Allocate(size), here = Allocate(size * 16);
  FillPattern(there.bytes(), 12);
  const Region t = remote.Register(there), h = local.Register(here);
  for (uint32_t i = 0; i < 16; ++i)
    ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = i,
                                                     .opcode = IBV_WR_RDMA_READ,
                                                     .remote_address = there.address(),
                                                     .rkey = t.rkey}
                                             .Add(here.address() + size * i, size, h.lkey)),
              0);
  for (uint32_t i = 0; i < 16; ++i) {
    const Completion done = local.Poll(pair.local, Queue::kSend);
    ASSERT_TRUE(done.found) << i;
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << i;
    EXPECT_EQ(FirstDifference(here.bytes().subspan(size * i, size), 12), -1) << i;
  }
}

TEST_F(Rc, CompareAndSwapSwapsOnlyOnAMatchAndAlwaysReturnsTheOldValue) {
  const Pair pair = ConnectPair(local, remote);
  const Buffer target = Allocate(8), old = Allocate(8);
  const Region t = remote.Register(target), o = local.Register(old);
  auto* value = reinterpret_cast<uint64_t*>(target.data);
  auto* before = reinterpret_cast<uint64_t*>(old.data);
  *value = 0x1122334455667788;
  const auto swap = [&](uint64_t compare, uint64_t replacement) {
    WorkRequest cas{.wr_id = 1,
                    .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                    .remote_address = target.address(),
                    .rkey = t.rkey,
                    .compare_add = compare,
                    .swap = replacement};
    ASSERT_EQ(local.PostSend(pair.local, cas.Add(old.address(), 8, o.lkey)), 0);
    const Completion done = local.Poll(pair.local, Queue::kSend);
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    EXPECT_EQ(done.wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(done.wc.byte_len, 8u);
  };
  swap(0x1122334455667788, 2);
  EXPECT_EQ(*before, 0x1122334455667788u);
  EXPECT_EQ(*value, 2u);
  swap(77, 3);
  EXPECT_EQ(*before, 2u);
  EXPECT_EQ(*value, 2u);
  EXPECT_TRUE(GuardsIntact());
}

TEST_F(Rc, FetchAndAddAddsAndReturnsTheOldValue) {
  const Pair pair = ConnectPair(local, remote);
  const Buffer target = Allocate(8), old = Allocate(8 * 50);
  const Region t = remote.Register(target), o = local.Register(old);
  auto* value = reinterpret_cast<uint64_t*>(target.data);
  *value = ~uint64_t{0} - 10;  // wraps
  for (uint64_t i = 0; i < 50; ++i)
    ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = i,
                                                     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                     .remote_address = target.address(),
                                                     .rkey = t.rkey,
                                                     .compare_add = 3}
                                             .Add(old.address() + 8 * i, 8, o.lkey)),
              0);
  for (uint64_t i = 0; i < 50; ++i) {
    const Completion done = local.Poll(pair.local, Queue::kSend);
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    EXPECT_EQ(done.wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(reinterpret_cast<uint64_t*>(old.data)[i], ~uint64_t{0} - 10 + 3 * i);
  }
  EXPECT_EQ(*value, ~uint64_t{0} - 10 + 150);
}

TEST_F(Rc, SendWithInvalidateEndsTheWindowItNames) {
  const Pair pair = ConnectPair(local, remote);
  const Buffer source = Allocate(64), window = Allocate(64), message = Allocate(64);
  FillPattern(source.bytes(), 20);
  const Region from = local.Register(source);
  const Region under = remote.Register(window, kAllAccess | IBV_ACCESS_MW_BIND);
  const Region m = remote.Register(message);
  const uint32_t rkey =
      remote.BindWindow(pair.remote, under.index, window, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(rkey, 0u);
  WorkRequest write{
      .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_address = window.address(), .rkey = rkey};
  write.Add(source.address(), 64, from.lkey);
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  Completion done = local.Poll(pair.local, Queue::kSend);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(FirstDifference(window.bytes(), 20), -1);

  ASSERT_EQ(
      remote.PostReceive(pair.remote, WorkRequest{.wr_id = 2}.Add(message.address(), 64, m.lkey)),
      0);
  ASSERT_EQ(local.PostSend(pair.local,
                           WorkRequest{.wr_id = 3, .opcode = IBV_WR_SEND_WITH_INV, .imm = rkey}.Add(
                               source.address(), 64, from.lkey)),
            0);
  const Completion received = remote.Poll(pair.remote, Queue::kReceive);
  ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
  EXPECT_NE(received.wc.wc_flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(received.wc.invalidated_rkey, rkey);
  done = local.Poll(pair.local, Queue::kSend);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);

  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  done = local.Poll(pair.local, Queue::kSend);
  EXPECT_EQ(done.wc.status, IBV_WC_REM_ACCESS_ERR) << Describe(done);
}

TEST_F(Rc, MisalignedBuffersMoveTheSameBytes) {
  const Pair pair = ConnectPair(local, remote, {}, {.mtu = IBV_MTU_512});
  const Buffer source = Allocate(3001, 13), sink = Allocate(3001, 7);
  FillPattern(source.bytes(), 30);
  const Region from = local.Register(source), to = remote.Register(sink);
  ASSERT_EQ(local.PostSend(pair.local, WorkRequest{.wr_id = 1,
                                                   .opcode = IBV_WR_RDMA_WRITE,
                                                   .remote_address = sink.address(),
                                                   .rkey = to.rkey}
                                           .Add(source.address(), 3001, from.lkey)),
            0);
  ASSERT_TRUE(local.Poll(pair.local, Queue::kSend).found);
  EXPECT_EQ(FirstDifference(sink.bytes(), 30), -1);
  EXPECT_TRUE(GuardsIntact());
}

TEST_F(Rc, APlaceOfTheSendQueueIsFreeAgainAfterItsCompletion) {
  const Pair pair = ConnectPair(local, remote, {.depth = 4});
  const Buffer sink = Allocate(8);
  const Region to = remote.Register(sink);
  const WorkRequest write{
      .opcode = IBV_WR_RDMA_WRITE, .remote_address = sink.address(), .rkey = to.rkey};
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(local.PostSend(pair.local, write), 0) << round;
    ASSERT_TRUE(local.Poll(pair.local, Queue::kSend).found) << round;
  }
}

TEST_F(Rc, ManyQueuePairsCarryTheirOwnBytes) {
  constexpr uint32_t kPairs = 32;
  std::vector<Pair> pairs;
  const Buffer source = Allocate(kPairs * 2000), sink = Allocate(kPairs * 2000);
  FillPattern(source.bytes(), 40);
  for (uint32_t i = 0; i < kPairs; ++i)
    pairs.push_back(ConnectPair(local, remote, {.depth = 8, .cqe = 16}));
  const Region from = local.Register(source), to = remote.Register(sink);
  for (uint32_t i = 0; i < kPairs; ++i)
    ASSERT_EQ(
        local.PostSend(pairs[i].local, WorkRequest{.wr_id = i,
                                                   .opcode = IBV_WR_RDMA_WRITE,
                                                   .remote_address = sink.address() + i * 2000,
                                                   .rkey = to.rkey}
                                           .Add(source.address() + i * 2000, 2000, from.lkey)),
        0);
  for (uint32_t i = 0; i < kPairs; ++i) {
    const Completion done = local.Poll(pairs[i].local, Queue::kSend);
    ASSERT_TRUE(done.found) << i;
    EXPECT_EQ(done.wc.wr_id, i);
  }
  EXPECT_EQ(FirstDifference(sink.bytes(), 40), -1);
}

}  // namespace
}  // namespace rdma_contract
