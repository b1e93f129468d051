// RC over a wire that drops and duplicates packets. Every operation is done once and completely, or
// fails with rxe's status.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class RcLoss : public ::testing::Test {
 protected:
  RcLoss() : world(false) {
    x = world.Make(world.a, IBV_QPT_RC, 64 * 1024);
    y = world.Make(world.b(), IBV_QPT_RC, 64 * 1024);
    FillPattern(x.buffer, 1);
  }
  // Drops (or duplicates) the nth packet, from 0, of the opcode with this name.
  void Affect(const std::string& name, int nth, Fate what) {
    world.fate = [this, name, nth, what, seen = 0](const wire::Packet& packet) mutable {
      if (packet.headers.info().name != name || seen++ != nth) return Fate::kDeliver;
      affected++;
      return what;
    };
  }
  void LoseAll(const std::string& name) {
    world.fate = [name](const wire::Packet& packet) {
      return packet.headers.info().name == name ? Fate::kDrop : Fate::kDeliver;
    };
  }
  void SendAndExpect(uint32_t size) {
    y.PostReceive(1, {y.Sge(0, size)});
    x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, size)});
    world.Ring(x);
    world.Run();
    EXPECT_EQ(affected, 1);
    const auto sent = x.Sent(), received = y.Received();
    ASSERT_EQ(sent.size(), 1u);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_EQ(received[0].byte_len, size);
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + size, y.buffer.begin()));
  }
  void ReadAndExpect(uint32_t size) {
    FillPattern(y.buffer, 2);
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, size)});
    world.Ring(x);
    world.Run();
    EXPECT_EQ(affected, 1);
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_TRUE(std::equal(y.buffer.begin(), y.buffer.begin() + size, x.buffer.begin()));
  }

  World world;
  Endpoint x, y;
  int affected = 0;
};

TEST_F(RcLoss, AnyPacketOfASendMayBeLost) {
  world.Join(x, y);
  for (const char* name : {"RC SEND First", "RC SEND Middle", "RC SEND Last", "RC Acknowledge"}) {
    SCOPED_TRACE(name);
    affected = 0;
    std::ranges::fill(y.buffer, std::byte{0});
    Affect(name, 0, Fate::kDrop);
    SendAndExpect(5000);
  }
}

TEST_F(RcLoss, AGapIsNamedByOneNakAndMendedBeforeAnyTimeout) {
  world.Join(x, y);
  Affect("RC SEND Middle", 0, Fate::kDrop);
  y.PostReceive(1, {y.Sge(0, 6000)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 6000)});
  world.Ring(x);
  world.Run(std::chrono::milliseconds(1));
  EXPECT_EQ(x.Sent().size(), 1u);
  EXPECT_EQ(world.b().engine.counters().naks, 1u);
}

TEST_F(RcLoss, AnyPacketOfASendMayComeTwice) {
  world.Join(x, y);
  for (const char* name : {"RC SEND First", "RC SEND Middle", "RC SEND Last", "RC Acknowledge"}) {
    SCOPED_TRACE(name);
    affected = 0;
    Affect(name, 0, Fate::kDuplicate);
    SendAndExpect(5000);
  }
}

TEST_F(RcLoss, AnyPacketOfAReadMayBeLost) {
  world.Join(x, y);
  for (const char* name : {"RC READ Request", "RC READ Response First", "RC READ Response Middle",
                           "RC READ Response Last"}) {
    SCOPED_TRACE(name);
    affected = 0;
    FillPattern(x.buffer, 9);
    Affect(name, 0, Fate::kDrop);
    ReadAndExpect(5000);
  }
}

TEST_F(RcLoss, ALostReadResponseIsAskedForFromWhereItBroke) {
  world.Join(x, y);
  Affect("RC READ Response Middle", 1, Fate::kDrop);
  ReadAndExpect(6000);
  EXPECT_EQ(std::ranges::count(world.seen, "RC READ Request"), 2);
  // Responses that arrived are not sent again.
  EXPECT_EQ(std::ranges::count(world.seen, "RC READ Response First"), 1);
}

TEST_F(RcLoss, ALongReadSurvivesALossInEachOfItsParts) {
  x = world.Make(world.a, IBV_QPT_RC, 200 * 1024);
  y = world.Make(world.b(), IBV_QPT_RC, 200 * 1024);
  world.Join(x, y);
  for (const int nth : {0, 60, 61, 62, 70, 130, 190}) {
    SCOPED_TRACE(nth);
    affected = 0;
    FillPattern(x.buffer, 9);
    Affect("RC READ Response Middle", nth, Fate::kDrop);
    ReadAndExpect(200 * 1024);
  }
}

TEST_F(RcLoss, AnAckBeyondAnUnansweredReadAsksForItAgain) {
  world.Join(x, y);
  FillPattern(std::span(y.buffer).first(64), 3);
  Affect("RC READ Response Only", 0, Fate::kDrop);
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, 64)});
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 4096), {x.Sge(4096, 64)});
  world.Ring(x);
  world.Run(std::chrono::milliseconds(1));  // well within the ACK timeout
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].wr_id, 1u);
  EXPECT_EQ(sent[1].wr_id, 2u);
  EXPECT_TRUE(std::equal(y.buffer.begin(), y.buffer.begin() + 64, x.buffer.begin()));
}

TEST_F(RcLoss, AnAtomicIsDoneOnceThoughItsAnswerIsLostOrItComesTwice) {
  for (const auto& [name, what] :
       {std::pair{"RC ATOMIC Acknowledge", Fate::kDrop}, std::pair{"RC FetchAdd", Fate::kDuplicate},
        std::pair{"RC FetchAdd", Fate::kDrop}}) {
    SCOPED_TRACE(name);
    world.Join(x, y);
    affected = 0;
    Affect(name, 0, what);
    uint64_t value = 10;
    std::memcpy(y.buffer.data(), &value, 8);
    x.Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, y, 0, 5), {x.Sge(0, 8)});
    world.Ring(x);
    world.Run();
    EXPECT_EQ(affected, 1);
    ASSERT_EQ(x.Sent().size(), 1u);
    uint64_t answer = 0;
    std::memcpy(&answer, x.buffer.data(), 8);
    std::memcpy(&value, y.buffer.data(), 8);
    EXPECT_EQ(answer, 10u);
    EXPECT_EQ(value, 15u);
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
  }
}

TEST_F(RcLoss, ReceiverNotReadyRecoversWhenAReceiveIsPosted) {
  Link link;
  link.min_rnr_timer = 14;  // 1.28 ms
  link.rnr_retry = 7;
  world.Join(x, y, link);
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
  world.Ring(x);
  world.Run(std::chrono::milliseconds(20));
  EXPECT_TRUE(x.Sent().empty());
  EXPECT_GE(world.b().engine.counters().rnr_naks, 10u);
  y.PostReceive(1, {y.Sge(0, 4096)});
  world.Run();
  EXPECT_EQ(x.Sent().size(), 1u);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 3000, y.buffer.begin()));
}

TEST_F(RcLoss, RnrRetriesAreCounted) {
  Link link;
  link.rnr_retry = 2;
  world.Join(x, y, link);
  x.Post(SendWr(IBV_WR_SEND, 1, 0), {x.Sge(0, 8)});
  x.Post(SendWr(IBV_WR_SEND, 2, 0), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RNR_RETRY_EXC_ERR});
  EXPECT_EQ(sent[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(world.b().engine.counters().rnr_naks, 3u);
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
}

TEST_F(RcLoss, RetriesAreCountedInAckTimeouts) {
  for (const uint8_t retries : {0, 1, 3}) {
    Link link;
    link.retry_count = retries;
    world.Join(x, y, link);
    LoseAll("RC SEND Only");
    const Time begin = world.now;
    x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
    world.Ring(x);
    world.Run();
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
    EXPECT_EQ(sent[0].opcode, 0u);
    EXPECT_EQ(sent[0].byte_len, 0u);
    EXPECT_EQ(world.now - begin, AckTimeout(14) * (retries + 1));
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
  }
}

TEST_F(RcLoss, RetryCountSevenIsEndlessOnRxe) {
  Link link;
  link.retry_count = 7;
  world.Join(x, y, link);
  LoseAll("RC SEND Only");
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run(std::chrono::seconds(30));
  EXPECT_TRUE(x.Sent().empty());
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

TEST_F(RcLoss, AStreamOverALossyWireArrivesInOrder) {
  Link link;
  link.retry_count = 7;
  world.Join(x, y, link);
  Random random(99);
  world.fate = [&random](const wire::Packet&) {
    const uint32_t draw = random.Below(20);
    return draw == 0 ? Fate::kDrop : draw == 1 ? Fate::kDuplicate : Fate::kDeliver;
  };
  for (uint64_t i = 0; i < 40; ++i) {
    y.PostReceive(i, {y.Sge(i * 1500, 1500)});
    x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(i * 1500, 1500)});
  }
  world.Ring(x);
  world.Run(std::chrono::seconds(100));
  const auto sent = x.Sent(), received = y.Received();
  ASSERT_EQ(sent.size(), 40u);
  ASSERT_EQ(received.size(), 40u);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(received[i].wr_id, i);
  }
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 60000, y.buffer.begin()));
}

TEST_F(RcLoss, APacketFromAnotherAddressIsNotTaken) {
  world.Join(x, y);
  wire::PacketHeaders headers;
  headers.destination_qpn = y.qp->qpn;
  headers.psn = 100;
  y.PostReceive(1, {y.Sge(0, 64)});
  const NetAddress stranger = *NetAddress::Parse("10.1.0.3");
  world.b().engine.Receive(world.now, {stranger, world.b().address, 4791, 4791}, {headers, {}});
  EXPECT_EQ(world.b().engine.counters().dropped_wrong_address, 1u);
  EXPECT_TRUE(y.Received().empty());
}

}  // namespace
}  // namespace rdmaemu::transport::testing
