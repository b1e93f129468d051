// Every operation of RC moves every byte, at sizes around the MTU's boundaries, between hosts and
// inside one.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr size_t kHalf = 512 * 1024;

class RcData : public ::testing::TestWithParam<bool> {
 protected:
  RcData() : world(GetParam()) {
    x = world.Make(world.a, IBV_QPT_RC, 2 * kHalf);
    y = world.Make(world.b(), IBV_QPT_RC, 2 * kHalf);
  }
  // Returns the same bytes in three pieces of different lengths.
  static std::vector<rxe_sge> Scatter(const Endpoint& e, size_t offset, uint32_t length) {
    const uint32_t first = length / 3, second = length / 7;
    return {e.Sge(offset, first), e.Sge(offset + first, second),
            e.Sge(offset + first + second, length - first - second)};
  }
  void ExpectOne(std::vector<ib_uverbs_wc> wcs, ibv_wc_opcode opcode, uint32_t byte_len) {
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_EQ(wcs[0].opcode, uint32_t{opcode});
    EXPECT_EQ(wcs[0].byte_len, byte_len);
  }
  static constexpr uint32_t kSizes[] = {0,    1,    3,    255,  256,  257,   1023,  1024,
                                        1025, 2047, 2048, 2049, 4096, 65536, 65537, 500001};

  World world;
  Endpoint x, y;
};

TEST_P(RcData, SendArrivesWholeAtEverySize) {
  world.Join(x, y);
  for (const uint32_t size : kSizes) {
    SCOPED_TRACE(size);
    FillPattern(std::span(x.buffer).first(size), size + 1);
    std::ranges::fill(y.buffer, std::byte{0xee});
    y.PostReceive(size, Scatter(y, 0, size + 5));
    rxe_send_wr wr = SendWr(IBV_WR_SEND_WITH_IMM, 7);
    wr.ex.imm_data = 0x01020304;
    x.Post(wr, Scatter(x, 0, size));
    world.Ring(x);
    world.Run();
    ExpectOne(x.Sent(), IBV_WC_SEND, size);
    const auto received = y.Received();
    ExpectOne(received, IBV_WC_RECV, size);
    EXPECT_EQ(received[0].wc_flags, uint32_t{IBV_WC_GRH | IBV_WC_WITH_IMM});
    EXPECT_EQ(received[0].ex.imm_data, 0x01020304u);
    EXPECT_EQ(received[0].wr_id, size);
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + size, y.buffer.begin()));
    EXPECT_EQ(y.buffer[size], std::byte{0xee});
  }
}

TEST_P(RcData, WriteArrivesWholeAtEveryMtu) {
  Link link;
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    link.mtu = mtu;
    world.Join(x, y, link);
    for (const uint32_t size : kSizes) {
      SCOPED_TRACE(std::to_string(mtu) + " " + std::to_string(size));
      FillPattern(std::span(x.buffer).first(size), size + 2);
      std::ranges::fill(y.buffer, std::byte{0xee});
      x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 64), Scatter(x, 0, size));
      world.Ring(x);
      world.Run();
      ExpectOne(x.Sent(), IBV_WC_RDMA_WRITE, size);
      EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + size, y.buffer.begin() + 64));
      EXPECT_EQ(y.buffer[63], std::byte{0xee});
      EXPECT_EQ(y.buffer[64 + size], std::byte{0xee});
    }
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
  }
}

TEST_P(RcData, WriteWithImmediateTellsTheLengthAndTakesAReceive) {
  world.Join(x, y);
  FillPattern(std::span(x.buffer).first(5000), 3);
  y.PostReceive(42, {});
  rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 1, y, 0);
  wr.ex.imm_data = 0xabcd;
  x.Post(wr, {x.Sge(0, 5000)});
  world.Ring(x);
  world.Run();
  ExpectOne(x.Sent(), IBV_WC_RDMA_WRITE, 5000);
  const auto received = y.Received();
  ExpectOne(received, IBV_WC_RECV_RDMA_WITH_IMM, 5000);
  EXPECT_EQ(received[0].ex.imm_data, 0xabcdu);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 5000, y.buffer.begin()));
}

TEST_P(RcData, ReadBringsEveryByteAtEverySize) {
  world.Join(x, y);
  for (const uint32_t size : kSizes) {
    SCOPED_TRACE(size);
    FillPattern(std::span(y.buffer).first(size), size + 4);
    std::ranges::fill(x.buffer, std::byte{0xee});
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), Scatter(x, 10, size));
    world.Ring(x);
    world.Run();
    ExpectOne(x.Sent(), IBV_WC_RDMA_READ, size);
    EXPECT_TRUE(std::equal(y.buffer.begin(), y.buffer.begin() + size, x.buffer.begin() + 10));
    EXPECT_EQ(x.buffer[10 + size], std::byte{0xee});
  }
}

TEST_P(RcData, AtomicsAnswerTheOldValueAndStoreTheNew) {
  world.Join(x, y);
  uint64_t value = 40, answer = 0;
  std::memcpy(y.buffer.data() + 8, &value, 8);
  x.Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, y, 8, 2), {x.Sge(0, 8)});
  x.Post(AtomicWr(IBV_WR_ATOMIC_CMP_AND_SWP, 2, y, 8, 42, 77), {x.Sge(8, 8)});
  x.Post(AtomicWr(IBV_WR_ATOMIC_CMP_AND_SWP, 3, y, 8, 42, 99), {x.Sge(16, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 3u);
  std::memcpy(&answer, x.buffer.data(), 8);
  EXPECT_EQ(answer, 40u);
  std::memcpy(&answer, x.buffer.data() + 8, 8);
  EXPECT_EQ(answer, 42u);
  std::memcpy(&answer, x.buffer.data() + 16, 8);
  EXPECT_EQ(answer, 77u);
  std::memcpy(&value, y.buffer.data() + 8, 8);
  EXPECT_EQ(value, 77u);
}

TEST_P(RcData, InlineDataIsTakenFromTheRing) {
  world.Join(x, y);
  FillPattern(std::span(x.buffer).first(200), 5);
  const std::vector<std::byte> sent(x.buffer.begin(), x.buffer.begin() + 200);
  y.PostReceive(1, {y.Sge(0, 4096)});
  x.Post(SendWr(IBV_WR_SEND, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE), {x.Sge(0, 200)});
  std::ranges::fill(x.buffer, std::byte{0});
  world.Ring(x);
  world.Run();
  ExpectOne(x.Sent(), IBV_WC_SEND, 200);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), y.buffer.begin()));
}

TEST_P(RcData, PsnsWrapAt24Bits) {
  Link link;
  link.psn_a = 0xfffffd;
  link.psn_b = 0xffffff;
  world.Join(x, y, link);
  FillPattern(x.buffer, 6);
  for (int i = 0; i < 5; ++i) {
    y.PostReceive(1, {y.Sge(0, 10000)});
    x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 10000)});
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, y, 0), {x.Sge(kHalf, 10000)});
  }
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 10u);
  EXPECT_EQ(y.Received().size(), 5u);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 10000, x.buffer.begin() + kHalf));
}

TEST_P(RcData, ARequestKeepsItsSlotUntilItCompletes) {
  x = world.Make(world.a, IBV_QPT_RC, 4096, 3);
  world.Join(x, y);
  for (int i = 0; i < 3; ++i) x.Post(SendWr(IBV_WR_SEND, 1, 0), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run(std::chrono::microseconds(5));  // no receive: the requester waits after an RNR NAK
  EXPECT_TRUE(x.qp->send_ring.Full());
  for (int i = 0; i < 3; ++i) y.PostReceive(1, {y.Sge(0, 8)});
  world.Run();
  EXPECT_TRUE(x.qp->send_ring.Empty());
  EXPECT_TRUE(x.Sent().empty());  // unsignalled
  EXPECT_EQ(y.Received().size(), 3u);
}

TEST_P(RcData, FenceWaitsForTheReadBeforeIt) {
  world.Join(x, y);
  FillPattern(std::span(y.buffer).first(3000), 8);
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, 3000)});
  // Sends the bytes that the READ fetches. They are correct only when the WRITE waited.
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, kHalf, IBV_SEND_SIGNALED | IBV_SEND_FENCE),
         {x.Sge(0, 3000)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 2u);
  EXPECT_TRUE(std::equal(y.buffer.begin(), y.buffer.begin() + 3000, y.buffer.begin() + kHalf));
}

// A passive side may receive data before its RTU (IBTA 11.6.3.1). Only an event reports that data.
// rdma_notify(3) decides whether the connection is established.
TEST_P(RcData, DataInRtrRaisesCommEstOnceOnHardwareAndNeverOnRxe) {
  for (const bool raises : {true, false}) {
    Endpoint active = world.Make(world.a, IBV_QPT_RC, 64);
    Endpoint passive = world.Make(world.b(), IBV_QPT_RC, 64);
    passive.qp->device->profile.raises_comm_est = raises;
    Link link;
    link.to_rts_b = false;
    world.Join(active, passive, link);
    for (int i = 0; i < 2; ++i) {
      passive.PostReceive(1, {passive.Sge(0, 64)});
      active.Post(SendWr(IBV_WR_SEND, 1), {active.Sge(0, 64)});
    }
    world.Ring(active);
    world.Run();
    EXPECT_EQ(active.Sent().size(), 2u);
    Verbs& verbs = world.b().verbs;
    const auto event = verbs.TakeAsyncEvent(world.now, kGroup, world.b().context->handle);
    EXPECT_EQ(event.has_value(), raises);
    if (event) {
      EXPECT_EQ(event->type, IBV_EVENT_COMM_EST);
      EXPECT_EQ(event->object, passive.qp->handle);
    }
    EXPECT_FALSE(verbs.TakeAsyncEvent(world.now, kGroup, world.b().context->handle).has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, RcData, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
