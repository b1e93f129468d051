// The responder and the order of requests. The tests check acknowledgements with their PSN and
// message number, and the response to a gap and to a request that was already executed.
#include "emulator/transport/qp_context.h"
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;

class RcResponderOrder : public ScriptedPeer {
 protected:
  void PostReceives(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) x.PostReceive(i, {x.Sge(0, 4096)});
  }
  const std::vector<std::byte> full = std::vector<std::byte>(1024, std::byte{0xaa});
};

// IBTA 9.7.5.1.1: the responder sends an ACK only for a request that asks for one.
TEST_F(RcResponderOrder, ARequestThatAsksForNoAckGetsNone) {
  Begin();
  PostReceives(2);
  EXPECT_TRUE(Say(Packet(kSendOnly, kPeerPsn)).empty());
  ExpectAck(Say(Request(kSendOnly, kPeerPsn + 1)), kPeerPsn + 1, 2);
  EXPECT_EQ(x.Received().size(), 2u);
}

// IBTA 9.7.7.1 (C9-147): the MSN counts messages, not packets. It grows with a message's last
// packet.
TEST_F(RcResponderOrder, TheMessageNumberGrowsWithTheLastPacketOfAMessage) {
  Begin();
  PostReceives(1);
  ExpectAck(Say(Request(kSendFirst, kPeerPsn), full), kPeerPsn, 0);
  ExpectAck(Say(Request(kSendMiddle, kPeerPsn + 1), full), kPeerPsn + 1, 0);
  ExpectAck(Say(Request(kSendLast, kPeerPsn + 2), full), kPeerPsn + 2, 1);
}

// IBTA 9.7.7.1: every kind of message counts once, a READ when its request is accepted.
TEST_F(RcResponderOrder, EveryKindOfMessageCountsOnce) {
  Begin();
  PostReceives(2);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  ExpectAck(Say(Remote(kWriteOnly, kPeerPsn + 1, 0, 1024), full), kPeerPsn + 1, 2);
  ExpectAck(Say(Remote(kWriteOnlyImm, kPeerPsn + 2, 0, 1024), full), kPeerPsn + 2, 3);
  const auto read = Say(Remote(kReadRequest, kPeerPsn + 3, 0, 3000));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read.front().headers.msn, 4u);
  EXPECT_EQ(read.back().headers.msn, 4u);
  const Out added = One(Say(Atomic(kFetchAdd, kPeerPsn + 6, 0, 1)));
  EXPECT_EQ(added.headers.msn, 5u);
  const Out swapped = One(Say(Atomic(kCompareSwap, kPeerPsn + 7, 0, 1)));
  EXPECT_EQ(swapped.headers.msn, 6u);
}

// IBTA 9.7.7.1: the MSN has 24 bits and wraps.
TEST_F(RcResponderOrder, MessageNumbersWrapAt24Bits) {
  Begin();
  PostReceives(2);
  Hand(Packet(kWriteOnly, kPeerPsn));
  // The state after 16 million messages.
  static_cast<QpContext&>(*x.qp->transport).responder.msn = 0xfffffe;
  const uint32_t psn = kPeerPsn + 1;
  ExpectAck(Say(Request(kSendOnly, psn)), psn, 0xffffff);
  ExpectAck(Say(Request(kSendOnly, PsnAdd(psn, 1))), PsnAdd(psn, 1), 0);
  // A repeated request gets the current number, in its wrapped form.
  ExpectAck(Say(Request(kSendOnly, psn)), PsnAdd(psn, 1), 0);
  ExpectAck(Say(Request(kWriteOnly, PsnAdd(psn, 2))), PsnAdd(psn, 2), 1);
}

// IBTA 9.7.5.1.3 (C9-114): one NAK per gap, then none until the missing request arrives.
TEST_F(RcResponderOrder, AGapGetsOneNakUntilTheMissingRequestComes) {
  Begin();
  PostReceives(5);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  const uint8_t sequence = Nak(wire::NakCode::kPsnSequence);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn + 2)), kPeerPsn + 1, 1, sequence);
  EXPECT_TRUE(Say(Request(kSendOnly, kPeerPsn + 3)).empty());
  EXPECT_TRUE(Say(Request(kSendOnly, kPeerPsn + 2)).empty());
  ExpectAck(Say(Request(kSendOnly, kPeerPsn + 1)), kPeerPsn + 1, 2);
  // The next gap gets its own NAK.
  ExpectAck(Say(Request(kSendOnly, kPeerPsn + 4)), kPeerPsn + 2, 2, sequence);
  EXPECT_EQ(world.a.engine.counters().naks, 2u);
  EXPECT_EQ(x.Received().size(), 2u);
}

// rxe's check_psn: a repeated request is not progress, so it does not permit a second NAK.
TEST_F(RcResponderOrder, ARepeatedRequestDoesNotCallForASecondNak) {
  Begin();
  PostReceives(3);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  EXPECT_EQ(Say(Request(kSendOnly, kPeerPsn + 2)).size(), 1u);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  EXPECT_TRUE(Say(Request(kSendOnly, kPeerPsn + 2)).empty());
}

// A gap inside a message keeps the packets that have arrived.
TEST_F(RcResponderOrder, AMessageGoesOnWhereItsGapIsMended) {
  Begin();
  PostReceives(1);
  Hand(Packet(kSendFirst, kPeerPsn), full);
  const std::vector<std::byte> last(10, std::byte{0xcc});
  ExpectAck(Say(Request(kSendLast, kPeerPsn + 2), last), kPeerPsn + 1, 0,
            Nak(wire::NakCode::kPsnSequence));
  const std::vector<std::byte> middle(1024, std::byte{0xbb});
  EXPECT_TRUE(Say(Packet(kSendMiddle, kPeerPsn + 1), middle).empty());
  ExpectAck(Say(Request(kSendLast, kPeerPsn + 2), last), kPeerPsn + 2, 1);
  const auto received = x.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 2058u);
  EXPECT_EQ(x.buffer[1023], std::byte{0xaa});
  EXPECT_EQ(x.buffer[1024], std::byte{0xbb});
  EXPECT_EQ(x.buffer[2057], std::byte{0xcc});
}

// C9-105: a repeated SEND or WRITE is acknowledged again, with the newest PSN and the current
// message number. It has no other effect.
TEST_F(RcResponderOrder, ARepeatedSendIsAcknowledgedAndNotExecuted) {
  Begin();
  PostReceives(3);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn + 1)), kPeerPsn + 1, 2);
  EXPECT_EQ(x.Received().size(), 2u);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn), full), kPeerPsn + 1, 2);
  EXPECT_TRUE(x.Received().empty());
  EXPECT_EQ(x.buffer[0], std::byte{0});
  EXPECT_EQ(world.a.engine.counters().duplicates, 1u);
}

TEST_F(RcResponderOrder, ARepeatedWriteDoesNotTouchMemoryAgain) {
  Begin();
  ExpectAck(Say(Remote(kWriteOnly, kPeerPsn, 64, 1024), full), kPeerPsn, 1);
  std::ranges::fill(x.buffer, std::byte{1});  // the program has changed the memory
  ExpectAck(Say(Remote(kWriteOnly, kPeerPsn, 64, 1024), full), kPeerPsn, 1);
  EXPECT_EQ(x.buffer[64], std::byte{1});
}

// A packet of an incomplete message may also be duplicated.
TEST_F(RcResponderOrder, ARepeatedMiddlePacketIsNotPlacedTwice) {
  Begin();
  PostReceives(1);
  Hand(Packet(kSendFirst, kPeerPsn), full);
  Hand(Packet(kSendMiddle, kPeerPsn + 1), full);
  ExpectAck(Say(Request(kSendFirst, kPeerPsn), full), kPeerPsn + 1, 0);
  ExpectAck(Say(Request(kSendLast, kPeerPsn + 2), full), kPeerPsn + 2, 1);
  EXPECT_EQ(x.Received()[0].byte_len, 3072u);
}

// rxe's ack_psn: only its response acknowledges a READ. So the ACK of a repeated SEND has a PSN
// before the READ that followed the SEND.
TEST_F(RcResponderOrder, ARepeatedSendNeverAcknowledgesTheReadBehindIt) {
  Begin();
  PostReceives(1);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  EXPECT_EQ(Say(Remote(kReadRequest, kPeerPsn + 1, 0, 2048)).size(), 2u);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 2);
}

// IBTA 9.7.5.2.8: without a receive, the response is an RNR NAK with the QP's timer. Later requests
// are dropped until this request is repeated.
TEST_F(RcResponderOrder, WithoutAReceiveNothingBehindIsTakenUntilTheRequestComesAgain) {
  Link link;
  link.min_rnr_timer = 17;
  Begin(link);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 0, RnrNak(17));
  EXPECT_TRUE(Say(Remote(kWriteOnly, kPeerPsn + 1, 0, 1024), full).empty());
  EXPECT_EQ(x.buffer[0], std::byte{0});
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 0, RnrNak(17));  // still none
  PostReceives(1);
  ExpectAck(Say(Request(kSendOnly, kPeerPsn)), kPeerPsn, 1);
  ExpectAck(Say(Remote(kWriteOnly, kPeerPsn + 1, 0, 1024), full), kPeerPsn + 1, 2);
  EXPECT_EQ(world.a.engine.counters().rnr_naks, 2u);
}

// Only the last packet of a WRITE with immediate needs a receive. The packets before it stay
// executed.
TEST_F(RcResponderOrder, AWriteWithImmediateIsHeldUpAtItsLastPacketOnly) {
  Begin();
  Hand(Remote(kWriteFirst, kPeerPsn, 0, 2048), full);
  EXPECT_EQ(One(Hear()).headers.syndrome, wire::kAethUnlimitedCredits);
  ExpectAck(Say(Request(kWriteLastImm, kPeerPsn + 1), full), kPeerPsn + 1, 0, RnrNak(1));
  x.PostReceive(9, {});
  ExpectAck(Say(Request(kWriteLastImm, kPeerPsn + 1), full), kPeerPsn + 1, 1);
  const auto received = x.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 2048u);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
