// UC and UD: what arrives, what is dropped silently, and the header before a UD payload.
#include "emulator/transport/unreliable.h"
#include "emulator/transport/harness.h"
#include "emulator/transport/send_wqe.h"

namespace rdmaemu::transport::testing {
namespace {

class Unconnected : public ::testing::TestWithParam<bool> {
 protected:
  Unconnected() : world(GetParam()) {}

  rxe_send_wr UdWr(const Endpoint& from, const Endpoint& to, uint32_t qkey) {
    rxe_send_wr wr = SendWr(IBV_WR_SEND, 1);
    wr.wr.ud.ah_num =
        (*from.node->verbs.CreateAh(kGroup, from.node->pd->handle, World::AddressOf(to)))->handle;
    wr.wr.ud.remote_qpn = to.qp->qpn;
    wr.wr.ud.remote_qkey = qkey;
    return wr;
  }
  World world;
};

class Ud : public Unconnected {
 protected:
  Ud() {
    x = world.Make(world.a, IBV_QPT_UD, 16384);
    y = world.Make(world.b(), IBV_QPT_UD, 16384);
    FillPattern(x.buffer, 4);
    world.ReadyUd(x, 0x11);
    world.ReadyUd(y, 0x22);
  }
  Endpoint x, y;
};

TEST(RouteOfADatagram, FillsAllFortyBytesWithIpv6) {
  Train train;
  train.headers.transport = wire::TransportClass::kUd;
  train.headers.operation = wire::Operation::kSendOnly;
  train.source = *NetAddress::Parse("fd00::1");
  train.destination = *NetAddress::Parse("fd00::2");
  train.traffic_class = 0x5a;
  train.hop_limit = 9;
  const std::array<std::byte, kGrhBytes> grh = MakeGrh(train);
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(grh[i]); };
  EXPECT_EQ(at(0) << 8 | at(1), 0x65a0u);
  EXPECT_EQ(at(4) << 8 | at(5), 8u + 12 + 8 + 4);  // UDP, BTH, DETH, ICRC
  EXPECT_EQ(at(6), 17u);
  EXPECT_EQ(at(7), 9u);
  EXPECT_EQ(std::memcmp(&grh[8], train.source.bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(&grh[24], train.destination.bytes.data(), 16), 0);
}

TEST_P(Ud, AMessageComesBehindTheHeaderOfItsPacket) {
  y.PostReceive(5, {y.Sge(0, 30), y.Sge(100, 4000)});
  x.Post(UdWr(x, y, 0x22), {x.Sge(0, 100)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 140u);
  EXPECT_EQ(received[0].src_qp, x.qp->qpn);
  EXPECT_EQ(received[0].wc_flags, uint32_t{IBV_WC_GRH});
  // 40 bytes in the two pieces: 20 zero bytes, then the IPv4 header.
  std::vector<uint8_t> header(40);
  std::memcpy(header.data(), y.buffer.data(), 30);
  std::memcpy(header.data() + 30, y.buffer.data() + 100, 10);
  EXPECT_TRUE(std::all_of(header.begin(), header.begin() + 20, [](uint8_t b) { return b == 0; }));
  EXPECT_EQ(header[20], 0x45);
  EXPECT_EQ(header[22] << 8 | header[23], 20 + 8 + 12 + 8 + 100 + 4);
  const std::vector<uint8_t> source(header.begin() + 32, header.begin() + 36);
  EXPECT_EQ(source, (std::vector<uint8_t>{10, 1, 0, 1}));
  uint32_t sum = 0;
  for (size_t i = 20; i < 40; i += 2) sum += header[i] << 8 | header[i + 1];
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 100, y.buffer.begin() + 110));
}

TEST_P(Ud, WhatWasPostedLeavesBeforeItsAddressHandleGoes) {
  constexpr uint32_t kMessages = 3 * kTrainsPerTurn;
  const rxe_send_wr wr = UdWr(x, y, 0x22);
  for (uint32_t i = 0; i < kMessages; ++i) {
    y.PostReceive(i, {y.Sge(0, 1000)});
    x.Post(wr, {x.Sge(0, 100)});
  }
  world.Ring(x);
  x.node->engine.SendPosted(world.now, GroupId{99});
  EXPECT_EQ(x.Sent().size(), 0u) << "it is another's";
  x.node->engine.SendPosted(world.now, kGroup);
  ASSERT_TRUE(x.node->verbs.DestroyAh(kGroup, wr.wr.ud.ah_num));
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), kMessages);
  for (const auto& wc : sent) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  world.Run();
  EXPECT_EQ(y.Received().size(), kMessages);
}

TEST_P(Ud, AWrongQkeyIsDropped) {
  y.PostReceive(5, {y.Sge(0, 4000)});
  x.Post(UdWr(x, y, 0x23), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(world.b().engine.counters().dropped_wrong_qkey, 1u);
  EXPECT_TRUE(y.Received().empty());
}

TEST_P(Ud, TheHighestBitOfAQkeyMeansOnesOwnWithTheProfilesHabit) {
  y.PostReceive(5, {y.Sge(0, 4000)});
  x.Post(UdWr(x, y, 0x80000000), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(world.b().engine.counters().dropped_wrong_qkey, 1u);
  x.qp->device->profile.ud_qkey_may_be_own = true;
  world.SetState(x, IBV_QPS_RESET);
  world.ReadyUd(x, 0x22);
  x.Post(UdWr(x, y, 0x80000000), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(y.Received().size(), 1u);
}

TEST_P(Ud, AMessageAboveTheMtuIsNotSentAndSucceeds) {
  y.PostReceive(5, {y.Sge(0, 8000)});
  x.Post(UdWr(x, y, 0x22), {x.Sge(0, 5000)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[0].byte_len, 5000u);
  EXPECT_TRUE(y.Received().empty());
}

TEST_P(Ud, AReceiveTooSmallTakesTheReceiverIntoErr) {
  y.PostReceive(5, {y.Sge(0, 60)});
  x.Post(UdWr(x, y, 0x22), {x.Sge(0, 100)});
  world.Ring(x);
  world.Run();
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

// rxe_resp_check_length of Linux 6.12.
TEST_P(Ud, ADeviceMayDropALongDatagramAndKeepTheReceive) {
  y.qp->device->profile.drops_long_datagrams = true;
  y.PostReceive(5, {y.Sge(0, 139)});
  for (const uint32_t bytes : {100u, 99u}) {
    x.Post(UdWr(x, y, 0x22), {x.Sge(0, bytes)});
    world.Ring(x);
    world.Run();
  }
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(received[0].byte_len, 139u);
  EXPECT_EQ(y.qp->state(), IBV_QPS_RTS);
  EXPECT_EQ(y.node->engine.counters().dropped_wrong_length, 1u);
}

TEST_P(Ud, AnUnknownAddressHandleIsALocalError) {
  rxe_send_wr wr = UdWr(x, y, 0x22);
  wr.wr.ud.ah_num += 1000;
  x.Post(wr, {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_LOC_QP_OP_ERR});
}

TEST_P(Ud, AGroupReachesAllThatJoinedAndAreAttachedTheSenderToo) {
  const NetAddress group = *NetAddress::Parse("239.1.2.3");
  for (Endpoint* e : {&x, &y}) {
    e->node->verbs.SetJoined(0, group, true);
    ASSERT_TRUE(e->node->verbs.AttachMcast(kGroup, e->qp->handle, group.ToGid()).has_value());
    world.SetState(*e, IBV_QPS_RESET);
    world.ReadyUd(*e, 0x33);
    e->PostReceive(1, {e->Sge(8000, 4000)});
  }
  rxe_send_wr wr = UdWr(x, y, 0x33);
  ibv_ah_attr attr = World::AddressOf(y);
  attr.grh.dgid = group.ToGid();
  wr.wr.ud.ah_num = (*world.a.verbs.CreateAh(kGroup, world.a.pd->handle, attr))->handle;
  wr.wr.ud.remote_qpn = wire::kMulticastQpn;
  x.Post(wr, {x.Sge(0, 64)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Received().size(), 1u);
  EXPECT_EQ(y.Received().size(), 1u);
}

class Uc : public Unconnected {
 protected:
  Uc() {
    x = world.Make(world.a, IBV_QPT_UC, 16384);
    y = world.Make(world.b(), IBV_QPT_UC, 16384);
    FillPattern(x.buffer, 5);
  }
  Endpoint x, y;
};

TEST_P(Uc, SendAndWriteArrive) {
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 5000)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 5000)});
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 8000), {x.Sge(100, 3000)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 2u);
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 5000u);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 5000, y.buffer.begin()));
  EXPECT_TRUE(std::equal(x.buffer.begin() + 100, x.buffer.begin() + 3100, y.buffer.begin() + 8000));
}

TEST_P(Uc, AMessageWithoutAReceiveIsLostAndTheNextArrives) {
  world.Join(x, y);
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
  y.PostReceive(9, {y.Sge(0, 3000)});
  x.Post(SendWr(IBV_WR_SEND, 2), {x.Sge(4000, 3000)});
  world.Ring(x);
  world.Run();
  ASSERT_EQ(y.Received().size(), 1u);
  EXPECT_TRUE(std::equal(x.buffer.begin() + 4000, x.buffer.begin() + 7000, y.buffer.begin()));
}

TEST_P(Uc, AWriteWithoutRightsVanishes) {
  Link link;
  link.access = 0;
  world.Join(x, y, link);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, 64)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(y.buffer[5], std::byte{0});
  EXPECT_EQ(y.qp->state(), IBV_QPS_RTS);
}

TEST(UcOnTheWire, ALostPacketCostsItsMessageOnly) {
  World world(false);
  Endpoint x = world.Make(world.a, IBV_QPT_UC, 16384), y = world.Make(world.b(), IBV_QPT_UC, 16384);
  FillPattern(x.buffer, 6);
  for (const char* name : {"UC SEND First", "UC SEND Middle", "UC SEND Last"}) {
    SCOPED_TRACE(name);
    world.Join(x, y);
    world.fate = [name, left = 1](const wire::Packet& packet) mutable {
      return packet.headers.info().name == std::string(name) && left-- > 0 ? Fate::kDrop
                                                                           : Fate::kDeliver;
    };
    for (uint64_t i = 0; i < 2; ++i) {
      y.PostReceive(i, {y.Sge(0, 4000)});
      x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(4000 * i, 4000)});
    }
    world.Ring(x);
    world.Run();
    EXPECT_EQ(x.Sent().size(), 2u);
    const auto received = y.Received();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].byte_len, 4000u);
    EXPECT_TRUE(std::equal(x.buffer.begin() + 4000, x.buffer.begin() + 8000, y.buffer.begin()));
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
  }
}

TEST(LocalCapture, HoldsThePacketsThatTheWireWouldHaveCarried) {
  World world(true);
  world.a.trace.keep_packets = true;
  Endpoint x = world.Make(world.a, IBV_QPT_RC, 8192), y = world.Make(world.a, IBV_QPT_RC, 8192);
  FillPattern(x.buffer, 7);
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 3000)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
  world.Ring(x);
  world.Run();
  ASSERT_EQ(world.a.trace.packets.size(), 4u);  // three of 1024 and the ACK
  const wire::UdpFlow flow{world.a.address, world.a.address, 4791, 4791};
  for (const std::vector<std::byte>& packet : world.a.trace.packets) {
    EXPECT_TRUE(wire::VerifyIcrc(flow, packet).has_value());
  }
  const auto last = wire::Parse(world.a.trace.packets[2]);
  ASSERT_TRUE(last.has_value());
  EXPECT_STREQ(last->headers.info().name, "RC SEND Last");
  EXPECT_EQ(last->headers.psn, 102u);
  EXPECT_TRUE(std::equal(last->payload.begin(), last->payload.end(), x.buffer.begin() + 2048));
}

TEST(HostileRing, WhatAProgramWritesIntoARequestCannotReachFurther) {
  World world(true);
  Endpoint x = world.Make(world.a, IBV_QPT_RC, 4096);
  auto* wqe = x.qp->send_ring.SlotAs<SendEntry>(0);
  SendWqe copy;
  wqe->opcode = IBV_WR_SEND;
  wqe->num_sge = 0xffffffff;
  CopySendWqe(*x.qp, 0, 1 << 23, copy);
  EXPECT_EQ(copy.status, IBV_WC_LOC_QP_OP_ERR);
  wqe->send_flags = IBV_SEND_INLINE;
  wqe->length = 0xffffffff;
  CopySendWqe(*x.qp, 0, 1 << 23, copy);
  EXPECT_EQ(copy.status, IBV_WC_LOC_QP_OP_ERR);
  wqe->send_flags = 0;
  wqe->num_sge = 2;
  auto* sges = reinterpret_cast<rxe_sge*>(wqe->Data());
  sges[0] = sges[1] = {0, 0xffffffff, 0};
  CopySendWqe(*x.qp, 0, 1 << 23, copy);
  EXPECT_EQ(copy.status, IBV_WC_LOC_LEN_ERR);
}

const auto kName = [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; };
INSTANTIATE_TEST_SUITE_P(Hosts, Ud, ::testing::Bool(), kName);
INSTANTIATE_TEST_SUITE_P(Hosts, Uc, ::testing::Bool(), kName);

}  // namespace
}  // namespace rdmaemu::transport::testing
