// The recovery from each kind of loss. The tests check what is repeated, and that nothing is
// repeated more often than necessary (IBTA 9.7.5.1.4, 9.7.5.2, 9.7.6).
#include "emulator/transport/harness.h"
#include "emulator/transport/psn.h"

namespace rdmaemu::transport::testing {
namespace {

class RcRecovery : public ::testing::Test {
 protected:
  RcRecovery() {
    x = world.Make(world.a, IBV_QPT_RC, 64 * 1024);
    y = world.Make(world.b(), IBV_QPT_RC, 64 * 1024);
    FillPattern(std::span(x.buffer).first(32 * 1024), 1);
    FillPattern(std::span(y.buffer).subspan(32 * 1024), 2);
    world.Join(x, y);
  }
  // Drops the nth packet of this name, from 0.
  void Lose(const std::string& name, int nth = 0) {
    world.fate = [name, nth](const wire::Packet& packet) mutable {
      return packet.headers.info().name == name && nth-- == 0 ? Fate::kDrop : Fate::kDeliver;
    };
  }
  void Post(const rxe_send_wr& wr, size_t offset, uint32_t length) {
    x.Post(wr, {x.Sge(offset, length)});
  }
  void Go() {
    world.Ring(x);
    world.Run();
  }
  void ExpectOk(size_t count) {
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(sent[i].wr_id, i);
      EXPECT_EQ(sent[i].status, uint32_t{IBV_WC_SUCCESS});
    }
  }
  // Returns the packets of a name that were sent over the wire, also lost ones.
  std::vector<Seen> Said(const std::string& name) const {
    std::vector<Seen> said;
    for (const Seen& seen : world.packets) {
      if (seen.headers.info().name == name) said.push_back(seen);
    }
    return said;
  }
  bool Same(const Endpoint& to, size_t at, const Endpoint& from, size_t begin, size_t n) const {
    return std::memcmp(to.buffer.data() + at, from.buffer.data() + begin, n) == 0;
  }
  uint64_t retransmissions() { return world.a.engine.counters().retransmissions; }

  World world{false};
  Endpoint x, y;
};

// IBTA 9.7.5.1.2: the next ACK also covers the lost one. Nothing is sent twice.
TEST_F(RcRecovery, ALostAckIsMadeGoodByTheNextOne) {
  Lose("RC Acknowledge");
  for (uint64_t i = 0; i < 2; ++i) {
    y.PostReceive(i, {y.Sge(i * 64, 64)});
    Post(SendWr(IBV_WR_SEND, i), i * 64, 64);
  }
  Go();
  ExpectOk(2);
  EXPECT_EQ(retransmissions(), 0u);
  EXPECT_EQ(Said("RC SEND Only").size(), 2u);
}

// C9-105: without a later ACK, the request is repeated. It is acknowledged and not executed again.
TEST_F(RcRecovery, ALostAckOfASendIsAskedForAndTheSendNotExecutedAgain) {
  Lose("RC Acknowledge");
  y.PostReceive(0, {y.Sge(0, 64)});
  y.PostReceive(1, {y.Sge(0, 64)});
  Post(SendWr(IBV_WR_SEND, 0), 0, 64);
  Go();
  ExpectOk(1);
  EXPECT_EQ(y.Received().size(), 1u);
  const auto acks = Said("RC Acknowledge");
  ASSERT_EQ(acks.size(), 2u);
  EXPECT_EQ(acks[1].headers.psn, acks[0].headers.psn);
  EXPECT_EQ(acks[1].headers.msn, 1u);
  EXPECT_EQ(acks[1].when - acks[0].when, AckTimeout(14));
  EXPECT_EQ(world.b().engine.counters().duplicates, 1u);
}

TEST_F(RcRecovery, ALostAckOfAWriteIsAskedForAndMemoryNotWrittenAgain) {
  world.fate = [this, lost = false](const wire::Packet& packet) mutable {
    if (!packet.headers.info().ack || std::exchange(lost, true)) return Fate::kDeliver;
    std::ranges::fill(std::span(y.buffer).first(3000), std::byte{0x77});  // y continues to work
    return Fate::kDrop;
  };
  Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, y, 0), 0, 3000);
  Go();
  ExpectOk(1);
  EXPECT_TRUE(std::all_of(y.buffer.begin(), y.buffer.begin() + 3000,
                          [](std::byte b) { return b == std::byte{0x77}; }));
}

// IBTA 9.7.5.1.4: responses that arrived are not requested again. The rest is, by PSN, address and
// length.
TEST_F(RcRecovery, ALostReadResponseInTheMiddleIsAskedForFromThere) {
  Lose("RC READ Response Middle", 1);
  Post(RdmaWr(IBV_WR_RDMA_READ, 0, y, 32 * 1024), 0, 5000);
  Go();
  ExpectOk(1);
  EXPECT_TRUE(Same(x, 0, y, 32 * 1024, 5000));
  const auto asked = Said("RC READ Request");
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].headers.psn, asked[0].headers.psn + 2);
  EXPECT_EQ(asked[1].headers.remote_address, asked[0].headers.remote_address + 2048);
  EXPECT_EQ(asked[1].headers.dma_length, 5000u - 2048);
  EXPECT_EQ(asked[1].when, asked[0].when);  // detected by the gap, not by a timeout
}

TEST_F(RcRecovery, ALostLastReadResponseIsAskedForAloneAfterTheTimeout) {
  Lose("RC READ Response Last");
  Post(RdmaWr(IBV_WR_RDMA_READ, 0, y, 32 * 1024), 0, 5000);
  Go();
  ExpectOk(1);
  EXPECT_TRUE(Same(x, 0, y, 32 * 1024, 5000));
  const auto asked = Said("RC READ Request");
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].headers.psn, asked[0].headers.psn + 4);
  EXPECT_EQ(asked[1].headers.dma_length, 5000u - 4096);
  EXPECT_EQ(asked[1].when - asked[0].when, AckTimeout(14));
  EXPECT_EQ(Said("RC READ Response Last").size(), 2u);
}

// With a later request, the next response reveals the loss at once.
TEST_F(RcRecovery, ALostOnlyReadResponseIsNoticedByTheNextAnswer) {
  Lose("RC READ Response Only");
  Post(RdmaWr(IBV_WR_RDMA_READ, 0, y, 32 * 1024), 0, 512);
  Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 33 * 1024), 512, 512);
  Go();
  ExpectOk(2);
  EXPECT_TRUE(Same(x, 0, y, 32 * 1024, 512));
  EXPECT_TRUE(Same(x, 512, y, 33 * 1024, 512));
  for (const Seen& asked : Said("RC READ Request")) EXPECT_EQ(asked.when, Time{});
}

TEST_F(RcRecovery, ALostAtomicAnswerIsGivenAgainAndTheAtomicNotDoneAgain) {
  Lose("RC ATOMIC Acknowledge");
  const uint64_t start = 100;
  std::memcpy(y.buffer.data(), &start, sizeof start);
  Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, y, 0, 7), 40'000, 8);
  Go();
  ExpectOk(1);
  uint64_t value, answer;
  std::memcpy(&value, y.buffer.data(), sizeof value);
  std::memcpy(&answer, x.buffer.data() + 40'000, sizeof answer);
  EXPECT_EQ(value, 107u);
  EXPECT_EQ(answer, 100u);
  EXPECT_EQ(Said("RC FetchAdd").size(), 2u);
}

// A request is lost and later ones arrive. One NAK names it, and the requester repeats from there.
TEST_F(RcRecovery, OneNakNamesALostRequestAndAllFromItGoAgain) {
  Lose("RC SEND Only", 1);
  for (uint64_t i = 0; i < 5; ++i) {
    y.PostReceive(i, {y.Sge(i * 64, 64)});
    Post(SendWr(IBV_WR_SEND, i), i * 64, 64);
  }
  Go();
  ExpectOk(5);
  EXPECT_TRUE(Same(y, 0, x, 0, 5 * 64));
  EXPECT_EQ(world.b().engine.counters().naks, 1u);
  EXPECT_EQ(retransmissions(), 1u);
  EXPECT_EQ(Said("RC SEND Only").size(), 5u + 4u);
}

// A lost NAK is not repeated. The timeout starts the recovery.
TEST_F(RcRecovery, ALostNakIsMadeGoodByTheTimeout) {
  world.fate = [request = 0, lost = false](const wire::Packet& packet) mutable {
    const bool nak = packet.headers.info().ack &&
                     (packet.headers.syndrome & 0xe0) == static_cast<uint8_t>(wire::AckKind::kNak);
    if (nak && !std::exchange(lost, true)) return Fate::kDrop;
    return packet.headers.info().send && request++ == 1 ? Fate::kDrop : Fate::kDeliver;
  };
  for (uint64_t i = 0; i < 4; ++i) {
    y.PostReceive(i, {y.Sge(i * 64, 64)});
    Post(SendWr(IBV_WR_SEND, i), i * 64, 64);
  }
  Go();
  ExpectOk(4);
  EXPECT_TRUE(Same(y, 0, x, 0, 4 * 64));
  EXPECT_EQ(y.Received().size(), 4u);
}

// IBTA 9.7.5.2.8: the receiver is not ready for packets that are repeated after a loss.
TEST_F(RcRecovery, ReceiverNotReadyDuringARetransmission) {
  Lose("RC SEND Only", 0);
  y.PostReceive(0, {y.Sge(0, 64)});
  for (uint64_t i = 0; i < 3; ++i) Post(SendWr(IBV_WR_SEND, i), i * 64, 64);
  world.Ring(x);
  // A NAK names the first request, which is repeated. The second one finds no receive.
  while (world.b().engine.counters().rnr_naks == 0) {
    world.Run(std::chrono::microseconds(1));
    ASSERT_TRUE(world.a.engine.NextDeadline().has_value());
    if (world.b().engine.counters().rnr_naks == 0) world.now = *world.a.engine.NextDeadline();
    world.a.engine.Expire(world.now);
  }
  y.PostReceive(1, {y.Sge(64, 64)});
  y.PostReceive(2, {y.Sge(128, 64)});
  world.Run();
  ExpectOk(3);
  EXPECT_TRUE(Same(y, 0, x, 0, 3 * 64));
  EXPECT_EQ(world.b().engine.counters().naks, 1u);
}

// An RNR NAK is lost. The timeout repeats the request, and the next RNR NAK has its normal wait.
TEST_F(RcRecovery, ALostRnrNakIsGivenAgain) {
  world.fate = [lost = false](const wire::Packet& packet) mutable {
    return packet.headers.info().ack && !std::exchange(lost, true) ? Fate::kDrop : Fate::kDeliver;
  };
  Post(SendWr(IBV_WR_SEND, 0), 0, 64);
  world.Ring(x);
  world.Run(std::chrono::milliseconds(1));
  EXPECT_EQ(world.b().engine.counters().rnr_naks, 1u);
  y.PostReceive(0, {y.Sge(0, 64)});
  world.Run();
  ExpectOk(1);
}

// The wire fails during a long message, and works again before the retries end.
TEST_F(RcRecovery, ALongMessageOutlivesASilence) {
  int sent = 0;
  world.fate = [&](const wire::Packet&) {
    return ++sent > 20 && world.now.time_since_epoch() < 2 * AckTimeout(14) ? Fate::kDrop
                                                                            : Fate::kDeliver;
  };
  Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, y, 0), 0, 30'000);
  Go();
  ExpectOk(1);
  EXPECT_TRUE(Same(y, 0, x, 0, 30'000));
}

// The wire stays broken. The oldest request fails, the others are flushed, and the peer gets no
// error.
TEST_F(RcRecovery, ASilenceBeyondTheRetriesFailsTheOldestAndFlushesTheRest) {
  int sent = 0;
  world.fate = [&](const wire::Packet&) { return ++sent > 20 ? Fate::kDrop : Fate::kDeliver; };
  Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, y, 0), 0, 30'000);
  Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), 0, 30'000);
  Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, y, 0, 1), 0, 8);
  Go();
  const auto done = x.Sent();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
  EXPECT_EQ(done[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(done[2].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(y.qp->state(), IBV_QPS_RTS);
}

// The peer destroys its QP during a READ. The READ fails after the retries.
TEST_F(RcRecovery, ARemoteQpThatGoesInTheMiddleOfAReadCostsTheRetries) {
  // The buffer is too long for one READ request on the wire.
  x = world.Make(world.a, IBV_QPT_RC, 200'000);
  y = world.Make(world.b(), IBV_QPT_RC, 200'000);
  world.Join(x, y);
  world.fate = [this, count = 0](const wire::Packet& packet) mutable {
    if (packet.headers.info().read && packet.headers.info().response && ++count == 3) {
      EXPECT_TRUE(world.b().verbs.DestroyQp(world.now, kGroup, y.qp->handle).has_value());
    }
    return Fate::kDeliver;
  };
  Post(RdmaWr(IBV_WR_RDMA_READ, 0, y, 0), 0, 200'000);
  Go();
  const auto done = x.Sent();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, uint32_t{IBV_WC_RETRY_EXC_ERR});
  EXPECT_GE(world.b().engine.counters().dropped_no_qp, 1u);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
