// Small payloads in shared memory. The library copies them when the program posts and when the
// program polls. The host moves them to memory before another access to that memory.
#include "emulator/abi/slab.h"

#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kSlabPayload = 100;

class SlabTest : public ::testing::TestWithParam<bool> {
 protected:
  SlabTest() : world(GetParam()) {
    for (Node* node : {&world.a, &world.b()}) node->verbs.ProcessJoined(kGroup, kProcess);
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.b(), IBV_QPT_RC, 4096);
    world.Join(x, y);
    FillPattern(x.buffer, 1);
    std::ranges::fill(y.buffer, std::byte{0xee});
  }
  void Send(uint64_t wr_id, std::vector<rxe_sge> sges) {
    x.Post(SendWr(IBV_WR_SEND, wr_id), std::move(sges));
    world.Ring(x);
    world.Run();
  }
  bool Arrived() const {
    return std::equal(x.buffer.begin(), x.buffer.begin() + kSlabPayload, y.buffer.begin());
  }
  ReceiveSlot& Slot(uint32_t index) { return y.recv_cq->slots[index]; }

  World world;
  Endpoint x, y;
};

TEST_P(SlabTest, AReceiveIsPlacedByWhoPollsIt) {
  y.PostReceive(1, {y.Sge(0, 40), y.Sge(40, 60)});
  Send(1, {x.Sge(0, kSlabPayload)});
  EXPECT_FALSE(Arrived());
  const CqEntry entry = *y.recv_cq->ring.SlotAs<CqEntry>(0);
  EXPECT_EQ(entry.payload, kPayloadWaits);
  EXPECT_EQ(entry.wc.byte_len, kSlabPayload);
  ReceiveSlot& slot = Slot(0);
  ASSERT_EQ(slot.pieces, 2u);
  EXPECT_EQ(slot.to[0].address, y.At(0));
  EXPECT_EQ(slot.to[0].length, 40u);
  EXPECT_EQ(slot.to[1].address, y.At(40));
  EXPECT_EQ(slot.to[1].length, 60u);
  EXPECT_EQ(std::memcmp(slot.payload, x.buffer.data(), kSlabPayload), 0);
  EXPECT_TRUE(slot.Claim());
  EXPECT_FALSE(slot.Claim()) << "one of program and host places it";
}

TEST_P(SlabTest, AReadAfterASendSeesWhatWasSent) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, y, 0), {x.Sge(2048, kSlabPayload)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(std::memcmp(&x.buffer[2048], x.buffer.data(), kSlabPayload), 0);
  EXPECT_TRUE(Arrived());
  EXPECT_FALSE(Slot(0).Claim());
}

TEST_P(SlabTest, AWriteAfterASendIsNotOverwrittenByThePoll) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 10), {x.Sge(3000, 20)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(std::memcmp(&y.buffer[10], &x.buffer[3000], 20), 0);
  EXPECT_FALSE(Slot(0).Claim());
}

// A thread polls, has taken the payload, and has lost its processor.
TEST_P(SlabTest, AWriteWaitsForTheThreadThatPlacesTheSendBeforeIt) {
  for (const int moments : {1, 220, 300}) {
    std::ranges::fill(y.buffer, std::byte{0xee});
    const uint32_t index = y.recv_cq->producer;
    y.PostReceive(1, {y.Sge(0, kSlabPayload)});
    Send(1, {x.Sge(0, kSlabPayload)});
    ReceiveSlot& slot = Slot(index);
    ASSERT_TRUE(slot.Claim());
    y.node->memory.meanwhile = [&, left = moments]() mutable {
      if (--left != 0) return;
      std::memcpy(y.buffer.data(), slot.payload, kSlabPayload);
      slot.SetState(ReceiveSlot::kPlaced);
    };
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 10), {x.Sge(3000, 20)});
    world.Ring(x);
    world.Run();
    EXPECT_EQ(std::memcmp(&y.buffer[0], &x.buffer[0], 10), 0);
    EXPECT_EQ(std::memcmp(&y.buffer[10], &x.buffer[3000], 20), 0);
    EXPECT_EQ(std::memcmp(&y.buffer[30], &x.buffer[30], kSlabPayload - 30), 0);
  }
}

TEST_P(SlabTest, AHostDoesNotWaitForAStoppedProcess) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  ASSERT_TRUE(Slot(0).Claim());
  y.node->memory.stopped.insert(kProcess);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 10), {x.Sge(3000, 20)});
  world.Ring(x);
  world.Run();
  EXPECT_LE(y.node->memory.moments_given, 200);
  EXPECT_EQ(std::memcmp(&y.buffer[10], &x.buffer[3000], 20), 0);
}

// A false claim costs the host a bounded time, and many of them less.
TEST_P(SlabTest, AHostDoesNotWaitForEndlessClaims) {
  int most = 8 * 350;
  for (uint32_t claims = 1; claims <= 12; claims++) {
    const uint32_t index = y.recv_cq->producer;
    y.PostReceive(1, {y.Sge(0, kSlabPayload)});
    Send(1, {x.Sge(0, kSlabPayload)});
    ASSERT_TRUE(Slot(index).Claim());
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 10), {x.Sge(3000, 20)});
    world.Ring(x);
    world.Run();
    EXPECT_EQ(std::memcmp(&y.buffer[10], &x.buffer[3000], 20), 0);
    if (claims > 8) most += 250;
    EXPECT_LE(y.node->memory.moments_given, most);
  }
}

TEST_P(SlabTest, WhatWasReceivedIsInPlaceBeforeMemoryIsGivenAway) {
  const auto receive = [&] {
    std::ranges::fill(y.buffer, std::byte{0xee});
    y.PostReceive(1, {y.Sge(0, kSlabPayload)});
    Send(1, {x.Sge(0, kSlabPayload)});
    EXPECT_FALSE(Arrived());
  };
  receive();
  world.SetState(y, IBV_QPS_ERR);
  EXPECT_TRUE(Arrived()) << "the QP went into ERR";
  for (Endpoint* end : {&x, &y}) world.SetState(*end, IBV_QPS_RESET);
  world.Join(x, y);

  receive();
  y.node->verbs.ProcessJoined(kGroup, ProcessId{2});
  EXPECT_TRUE(Arrived()) << "a second process joined";
  std::ranges::fill(y.buffer, std::byte{0xee});
  y.PostReceive(2, {y.Sge(0, kSlabPayload)});
  Send(2, {x.Sge(0, kSlabPayload)});
  EXPECT_TRUE(Arrived()) << "the host cannot know which of the two will poll";
}

TEST_P(SlabTest, WhatWasReceivedIsInPlaceBeforeItsRegionGoes) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  ASSERT_TRUE(y.node->verbs.DeregMr(kGroup, y.mr->handle));
  EXPECT_TRUE(Arrived());
}

TEST_P(SlabTest, WhatWasReceivedIsInPlaceBeforeItsRegionMoves) {
  Verbs& verbs = y.node->verbs;
  verbs.devices()[0]->profile.reregisters_regions = true;
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  ASSERT_TRUE(verbs.ReregMr(kGroup, kProcess, y.mr->handle,
                            {IBV_REREG_MR_CHANGE_TRANSLATION, 0, 0, y.At(2048), 1024}));
  EXPECT_TRUE(Arrived());
  EXPECT_FALSE(Slot(0).Claim());
}

TEST_P(SlabTest, ALargerMessageForTheSameBytesComesAfterThoseThatWait) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  y.PostReceive(2, {y.Sge(0, 2 * kSlabBytes)});
  Send(1, {x.Sge(0, kSlabPayload)});
  Send(2, {x.Sge(1000, 2 * kSlabBytes)});
  EXPECT_FALSE(Slot(0).Claim());
  EXPECT_EQ(std::memcmp(y.buffer.data(), &x.buffer[1000], 2 * kSlabBytes), 0);
}

TEST_P(SlabTest, AReadIntoTheSameBytesComesAfterThoseThatWait) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  y.Post(RdmaWr(IBV_WR_RDMA_READ, 2, x, 1000), {y.Sge(0, kSlabPayload)});
  world.Ring(y);
  world.Run();
  EXPECT_FALSE(Slot(0).Claim());
  EXPECT_EQ(std::memcmp(y.buffer.data(), &x.buffer[1000], kSlabPayload), 0);
}

TEST(PayloadShortcutsTest, AHostWithoutThemTakesNoShortWay) {
  for (const bool shortcuts : {true, false}) {
    Node node("10.1.0.1", shortcuts);
    const Span page = *node.verbs.DoorbellSpan(kGroup);
    const auto& doorbells = *reinterpret_cast<const DoorbellPage*>(page.bytes);
    EXPECT_EQ(doorbells.no_payload_shortcuts, shortcuts ? 0u : 1u) << "the library is told";
    node.verbs.ProcessJoined(kGroup, kProcess);
    EXPECT_EQ(node.context->share->sole_process, shortcuts ? kProcess : ProcessId::kNone);
  }
}

TEST_P(SlabTest, WhatWasReceivedMovesWithAResizedQueue) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  Send(1, {x.Sge(0, kSlabPayload)});
  ASSERT_TRUE(y.node->verbs.ResizeCq(kGroup, y.recv_cq->handle, 500));
  EXPECT_TRUE(Arrived());
  EXPECT_EQ(y.recv_cq->ring.SlotAs<CqEntry>(0)->payload, 0u);
}

TEST_P(SlabTest, ASendCarriesWhatWasThereWhenItWasPosted) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  const uint32_t index = x.qp->send_ring.Producer();
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, kSlabPayload)});
  SendEntry& entry = *x.qp->send_ring.SlotAs<SendEntry>(index);
  std::memcpy(entry.Taken(1), x.buffer.data(), kSlabPayload);
  entry.state = kPayloadTaken;
  std::vector<std::byte> posted(x.buffer.begin(), x.buffer.begin() + kSlabPayload);
  std::ranges::fill(x.buffer, std::byte{0x11});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(std::memcmp(Slot(0).payload, posted.data(), kSlabPayload), 0);
}

TEST_P(SlabTest, KeysAreCheckedForWhatWasTakenToo) {
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  const uint32_t index = x.qp->send_ring.Producer();
  rxe_sge sge = x.Sge(0, kSlabPayload);
  sge.lkey ^= 0x100;
  x.Post(SendWr(IBV_WR_SEND, 1), {sge});
  x.qp->send_ring.SlotAs<SendEntry>(index)->state = kPayloadTaken;
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_NE(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_TRUE(y.Received().empty());
}

TEST_P(SlabTest, AnAddressThatIsNotTheProgramsIsReadThroughItsRegion) {
  // ibv_reg_mr_iova: keys name the bytes by addresses that differ from the program's own.
  const auto mr = x.node->verbs.RegMr(
      kGroup, kProcess,
      {x.node->pd->handle, IBV_ACCESS_LOCAL_WRITE, x.At(0), 4096, x.At(0) + 4096});
  ASSERT_TRUE(mr);
  y.PostReceive(1, {y.Sge(0, kSlabPayload)});
  const uint32_t index = x.qp->send_ring.Producer();
  x.Post(SendWr(IBV_WR_SEND, 1), {{x.At(0) + 4096, kSlabPayload, (*mr)->lkey}});
  SendEntry& entry = *x.qp->send_ring.SlotAs<SendEntry>(index);
  std::memset(entry.Taken(1), 0x77, kSlabPayload);
  entry.state = kPayloadTaken;
  world.Ring(x);
  world.Run();
  EXPECT_EQ(std::memcmp(Slot(0).payload, x.buffer.data(), kSlabPayload), 0);
}

INSTANTIATE_TEST_SUITE_P(Hosts, SlabTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
