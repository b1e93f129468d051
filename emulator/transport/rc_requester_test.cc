// The requester with responses written by hand. The tests check the PSN of a repetition, the effect
// of each ACK and NAK, the counters, and the ignored responses (IBTA 9.7.5.2, 9.9.2; rxe_comp.c,
// rxe_req.c).
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;
using Strings = std::vector<std::string>;
using Numbers = std::vector<uint32_t>;

class RcRequester : public ScriptedPeer {
 protected:
  // Posts SENDs of 8 bytes with wr_ids 0, 1, ... and PSNs 100, 101, ...
  std::vector<Out> PostSends(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(0, 8)});
    world.Ring(x);
    return Hear();
  }
  std::vector<Out> PostRead(uint32_t length, uint64_t wr_id = 1) {
    x.Post(RdmaWr(IBV_WR_RDMA_READ, wr_id, y, 0), {x.Sge(0, length)});
    world.Ring(x);
    return Hear();
  }
  std::vector<Out> PostFetchAdd(uint64_t wr_id = 1) {
    x.Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id, y, 0, 1), {x.Sge(0, 8)});
    world.Ring(x);
    return Hear();
  }
  // Returns a response with an AETH.
  wire::PacketHeaders Answer(wire::Operation operation, uint32_t psn) const {
    auto headers = Packet(operation, psn);
    headers.syndrome = wire::kAethUnlimitedCredits;
    return headers;
  }
  // Completions so far, as (wr_id, status).
  using Statuses = std::vector<std::pair<uint64_t, uint32_t>>;
  Statuses Completed() {
    Statuses all;
    for (const ib_uverbs_wc& wc : x.Sent()) all.emplace_back(wc.wr_id, wc.status);
    return all;
  }
  static constexpr uint32_t kOk = IBV_WC_SUCCESS, kFlushed = IBV_WC_WR_FLUSH_ERR;
  uint64_t retransmissions() { return world.a.engine.counters().retransmissions; }
  const std::vector<std::byte> full = std::vector<std::byte>(1024, std::byte{0xaa});
};

// IBTA 9.7.5.1.2 (C9-110): one ACK covers all requests up to its PSN.
TEST_F(RcRequester, ACoalescedAckCompletesAllBeforeItInOrder) {
  Begin();
  PostSends(4);
  Say(Ack(kOwnPsn + 2));
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}, {1, kOk}, {2, kOk}}));
  Say(Ack(kOwnPsn + 3));
  EXPECT_EQ(Completed(), (Statuses{{3, kOk}}));
  EXPECT_EQ(retransmissions(), 0u);
}

TEST_F(RcRequester, AnAckInsideAMessageCompletesNothing) {
  Begin();
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 3000)});
  world.Ring(x);
  EXPECT_EQ(Hear().size(), 3u);
  Say(Ack(kOwnPsn + 1));
  EXPECT_TRUE(Completed().empty());
  // But the acknowledged packets need no retransmission.
  EXPECT_EQ(Psns(HearLater()), Numbers{kOwnPsn + 2});
}

// IBTA 9.7.5.2.1: an old ACK, or an ACK of a PSN that was never sent, is ignored.
TEST_F(RcRequester, OldAcksAndAcksOfWhatWasNeverSentAreIgnored) {
  Begin();
  PostSends(3);
  Say(Ack(kOwnPsn + 1));
  EXPECT_EQ(Completed().size(), 2u);
  EXPECT_TRUE(Say(Ack(kOwnPsn)).empty());
  EXPECT_TRUE(Say(Ack(kOwnPsn, Nak(wire::NakCode::kRemoteAccess))).empty());
  EXPECT_TRUE(Say(Ack(kOwnPsn + 3)).empty());
  EXPECT_TRUE(Say(Ack(kOwnPsn + 3, Nak(wire::NakCode::kInvalidRequest))).empty());
  EXPECT_TRUE(Say(Answer(kReadResponseOnly, kOwnPsn + 3)).empty());
  EXPECT_TRUE(Completed().empty());
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

// IBTA 9.7.5.2.4: a sequence NAK acknowledges the packets before it. All from it on are repeated.
TEST_F(RcRequester, ASequenceNakRepeatsFromThePsnItNames) {
  Begin();
  EXPECT_EQ(PostSends(5).size(), 5u);
  const auto again = Say(Ack(kOwnPsn + 2, Nak(wire::NakCode::kPsnSequence)));
  EXPECT_EQ(Psns(again), (Numbers{kOwnPsn + 2, kOwnPsn + 3, kOwnPsn + 4}));
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}, {1, kOk}}));
  EXPECT_EQ(retransmissions(), 1u);
}

// A message is repeated from the missing packet, not from its start. Headers of the first packet
// are not sent again.
TEST_F(RcRequester, ASequenceNakInsideAWriteRepeatsTheRestOfIt) {
  Begin();
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, 4000)});
  world.Ring(x);
  EXPECT_EQ(Hear().size(), 4u);
  const auto again = Say(Ack(kOwnPsn + 1, Nak(wire::NakCode::kPsnSequence)));
  EXPECT_EQ(Names(again), (Strings{"RC WRITE Middle", "RC WRITE Middle", "RC WRITE Last"}));
  EXPECT_EQ(Psns(again), (Numbers{kOwnPsn + 1, kOwnPsn + 2, kOwnPsn + 3}));
}

// rxe's started_retry: the NAKs of one loss cause one retransmission. Progress permits another one.
TEST_F(RcRequester, ASecondNakBeforeAnyProgressRepeatsNothing) {
  Begin();
  PostSends(5);
  const auto nak = Ack(kOwnPsn + 1, Nak(wire::NakCode::kPsnSequence));
  EXPECT_EQ(Say(nak).size(), 4u);
  EXPECT_TRUE(Say(nak).empty());
  Say(Ack(kOwnPsn + 1));
  EXPECT_EQ(Say(Ack(kOwnPsn + 2, Nak(wire::NakCode::kPsnSequence))).size(), 3u);
  EXPECT_EQ(retransmissions(), 2u);
}

// A late response to the first attempt completes the requests that it covers.
TEST_F(RcRequester, AnAckOfTheFirstAttemptEndsTheRepetition) {
  Begin();
  PostSends(3);
  EXPECT_EQ(HearLater().size(), 3u);
  Say(Ack(kOwnPsn + 2));
  EXPECT_EQ(Completed().size(), 3u);
  EXPECT_TRUE(HearLater().empty());
}

// IBTA 9.9.2.4: the status that each fatal NAK gives its request. Requests before it succeed,
// requests after it are flushed, and the QP is in ERR.
TEST_F(RcRequester, AFatalNakFailsItsRequestAndFlushesTheRest) {
  const std::pair<wire::NakCode, ibv_wc_status> cases[] = {
      {wire::NakCode::kInvalidRequest, IBV_WC_REM_INV_REQ_ERR},
      {wire::NakCode::kRemoteAccess, IBV_WC_REM_ACCESS_ERR},
      {wire::NakCode::kRemoteOperation, IBV_WC_REM_OP_ERR}};
  for (const auto& [code, status] : cases) {
    SCOPED_TRACE(static_cast<int>(code));
    Begin();
    PostSends(4);
    EXPECT_TRUE(Say(Ack(kOwnPsn + 1, Nak(code))).empty());
    EXPECT_EQ(Completed(),
              (Statuses{{0, kOk}, {1, uint32_t{status}}, {2, kFlushed}, {3, kFlushed}}));
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  }
}

// IBTA 9.7.5.1.4: a READ requests the missing part again, by PSN, address and length.
TEST_F(RcRequester, ALostResponseInTheMiddleOfAReadIsAskedForFromThere) {
  Begin();
  const Out request = One(PostRead(5000));
  EXPECT_EQ(request.headers.dma_length, 5000u);
  EXPECT_TRUE(Say(Answer(kReadResponseFirst, kOwnPsn), full).empty());
  const Out again = One(Say(Packet(kReadResponseMiddle, kOwnPsn + 2), full));
  EXPECT_EQ(again.name, "RC READ Request");
  EXPECT_EQ(again.headers.psn, kOwnPsn + 1);
  EXPECT_EQ(again.headers.remote_address, y.At(1024));
  EXPECT_EQ(again.headers.dma_length, 5000u - 1024);
  EXPECT_EQ(again.headers.rkey, y.mr->rkey);
  // Responses behind the gap are dropped. The second response is accepted.
  EXPECT_TRUE(Say(Packet(kReadResponseMiddle, kOwnPsn + 3), full).empty());
  for (uint32_t i = 1; i < 4; ++i) Say(Packet(kReadResponseMiddle, kOwnPsn + i), full);
  EXPECT_TRUE(Completed().empty());
  Say(Answer(kReadResponseLast, kOwnPsn + 4), std::span(full).first(5000 - 4096));
  EXPECT_EQ(Completed(), (Statuses{{1, kOk}}));
  EXPECT_TRUE(std::all_of(x.buffer.begin(), x.buffer.begin() + 5000,
                          [](std::byte b) { return b == std::byte{0xaa}; }));
}

TEST_F(RcRequester, ALostLastResponseOfAReadIsAskedForAfterTheTimeout) {
  Begin();
  PostRead(2500);
  Say(Answer(kReadResponseFirst, kOwnPsn), full);
  Say(Packet(kReadResponseMiddle, kOwnPsn + 1), full);
  const Out again = One(HearLater());
  EXPECT_EQ(again.name, "RC READ Request");
  EXPECT_EQ(again.headers.psn, kOwnPsn + 2);
  EXPECT_EQ(again.headers.remote_address, y.At(2048));
  EXPECT_EQ(again.headers.dma_length, 2500u - 2048);
  Say(Answer(kReadResponseLast, kOwnPsn + 2), std::span(full).first(2500 - 2048));
  EXPECT_EQ(Completed(), (Statuses{{1, kOk}}));
}

TEST_F(RcRequester, ALostAtomicAnswerIsAskedForUnderTheSamePsn) {
  Begin();
  const Out first = One(PostFetchAdd()), again = One(HearLater());
  EXPECT_EQ(again.name, "RC FetchAdd");
  EXPECT_EQ(again.headers.psn, first.headers.psn);
  EXPECT_EQ(again.headers.swap_add, 1u);
  auto answer = Answer(kAtomicAcknowledge, kOwnPsn);
  answer.original = 41;
  Say(answer);
  EXPECT_EQ(WordAt(0), 41u);
  EXPECT_EQ(Completed(), (Statuses{{1, kOk}}));
  // A second response changes nothing.
  answer.original = 77;
  Say(answer);
  EXPECT_EQ(WordAt(0), 41u);
}

// IBTA 9.7.5.1.4: an ACK beyond a READ or atomic means that its response was lost.
TEST_F(RcRequester, AnAckBeyondAnUnansweredReadOrAtomicAsksForItAgain) {
  for (const bool atomic : {false, true}) {
    Begin();
    if (atomic) {
      PostFetchAdd();
    } else {
      PostRead(8);
    }
    x.Post(SendWr(IBV_WR_SEND, 2), {x.Sge(0, 8)});
    world.Ring(x);
    EXPECT_EQ(Hear().size(), 1u);
    const auto again = Say(Ack(kOwnPsn + 1));
    EXPECT_EQ(Psns(again), (Numbers{kOwnPsn, kOwnPsn + 1}));
    EXPECT_TRUE(Completed().empty());
  }
}

// A READ's response acknowledges the SENDs before it.
TEST_F(RcRequester, AReadResponseAcknowledgesWhatStandsBeforeTheRead) {
  Begin();
  PostSends(2);
  PostRead(8, 9);
  Say(Answer(kReadResponseOnly, kOwnPsn + 2), std::span(full).first(8));
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}, {1, kOk}, {9, kOk}}));
}

// IBTA 9.9.2.4.2: a response whose length disagrees with the request.
TEST_F(RcRequester, AReadResponseOfTheWrongLengthIsABadResponse) {
  const struct {
    uint32_t asked;
    wire::Operation operation;
    size_t bytes;
  } cases[] = {{2048, kReadResponseFirst, 1020},
               {8, kReadResponseOnly, 12},
               {8, kReadResponseOnly, 0},
               {1024, kReadResponseOnly, 1020}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.asked);
    Begin();
    PostRead(c.asked);
    Say(Answer(c.operation, kOwnPsn), std::span(full).first(c.bytes));
    EXPECT_EQ(Completed(), (Statuses{{1, IBV_WC_BAD_RESP_ERR}}));
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  }
}

// Responses of a wrong kind have no effect.
TEST_F(RcRequester, AnAnswerOfAnotherKindIsIgnored) {
  Begin();
  PostSends(1);
  auto answer = Answer(kAtomicAcknowledge, kOwnPsn);
  answer.original = 0x123;
  Say(answer);
  Say(Answer(kReadResponseOnly, kOwnPsn), std::span(full).first(8));
  EXPECT_TRUE(Completed().empty());
  EXPECT_EQ(WordAt(0), 0u);
  Say(Ack(kOwnPsn));
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}}));
}

// An ACK never completes a READ. Only the READ's data does.
TEST_F(RcRequester, AnAckOfAReadIsNotItsAnswer) {
  Begin();
  PostRead(8);
  EXPECT_EQ(Names(Say(Ack(kOwnPsn))), Strings{"RC READ Request"});
  EXPECT_TRUE(Completed().empty());
}

// IBTA 9.7.5.2.8: the requester waits for the NAK's RNR timer, then repeats all from that PSN on.
TEST_F(RcRequester, AnRnrNakWaitsForTheTimeItNames) {
  Begin();
  PostSends(3);
  const Time begin = world.now;
  EXPECT_TRUE(Say(Ack(kOwnPsn + 1, RnrNak(14))).empty());
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}}));
  EXPECT_EQ(Psns(HearLater()), (Numbers{kOwnPsn + 1, kOwnPsn + 2}));
  EXPECT_EQ(world.now - begin, std::chrono::microseconds(1280));
}

// New work waits, too, because the responder would refuse it.
TEST_F(RcRequester, WorkPostedDuringAnRnrWaitWaitsToo) {
  Begin();
  PostSends(1);
  Say(Ack(kOwnPsn, RnrNak(20)));
  x.Post(SendWr(IBV_WR_SEND, 5), {x.Sge(0, 8)});
  world.Ring(x);
  EXPECT_TRUE(Hear().empty());
  EXPECT_EQ(Psns(HearLater()), (Numbers{kOwnPsn, kOwnPsn + 1}));
}

TEST_F(RcRequester, AnRnrNakDuringARetransmissionWaitsAndThenGoesOn) {
  Begin();
  PostSends(4);
  EXPECT_EQ(Say(Ack(kOwnPsn + 1, Nak(wire::NakCode::kPsnSequence))).size(), 3u);
  const Time begin = world.now;
  EXPECT_TRUE(Say(Ack(kOwnPsn + 1, RnrNak(12))).empty());
  // Late sequence NAKs of later packets change nothing.
  EXPECT_TRUE(Say(Ack(kOwnPsn + 1, Nak(wire::NakCode::kPsnSequence))).empty());
  EXPECT_EQ(Psns(HearLater()), (Numbers{kOwnPsn + 1, kOwnPsn + 2, kOwnPsn + 3}));
  EXPECT_EQ(world.now - begin, std::chrono::microseconds(640));
  Say(Ack(kOwnPsn + 3));
  EXPECT_EQ(Completed().size(), 4u);
}

TEST_F(RcRequester, AnRnrNakAfterATimeoutWaitsItsOwnTime) {
  Begin();
  PostSends(1);
  EXPECT_EQ(HearLater().size(), 1u);
  const Time begin = world.now;
  EXPECT_TRUE(Say(Ack(kOwnPsn, RnrNak(31))).empty());  // 491.52 ms: beyond the ACK timeout
  EXPECT_EQ(HearLater().size(), 1u);
  EXPECT_EQ(world.now - begin, std::chrono::microseconds(491520));
}

// IBTA 9.7.5.2.8: rnr_retry repetitions, then the request fails.
TEST_F(RcRequester, RnrRetriesRunOut) {
  Link link;
  link.rnr_retry = 2;
  Begin(link);
  PostSends(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Say(Ack(kOwnPsn, RnrNak(1))).empty());
    EXPECT_EQ(HearLater().size(), 2u);
  }
  Say(Ack(kOwnPsn, RnrNak(1)));
  EXPECT_EQ(Completed(), (Statuses{{0, IBV_WC_RNR_RETRY_EXC_ERR}, {1, kFlushed}}));
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
}

TEST_F(RcRequester, AnRnrRetryCountOfSevenNeverRunsOut) {
  Link link;
  link.rnr_retry = 7;
  Begin(link);
  PostSends(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Say(Ack(kOwnPsn, RnrNak(1))).empty());
    ASSERT_EQ(HearLater().size(), 1u);
  }
  Say(Ack(kOwnPsn));
  EXPECT_EQ(Completed(), (Statuses{{0, kOk}}));
}

TEST_F(RcRequester, ProgressGivesAllRetriesBack) {
  Link link;
  link.rnr_retry = link.retry_count = 1;
  Begin(link);
  PostSends(3);
  for (uint32_t i = 0; i < 3; ++i) {
    Say(Ack(kOwnPsn + i, RnrNak(1)));
    EXPECT_EQ(HearLater().size(), 3 - i);
    EXPECT_EQ(HearLater().size(), 3 - i);  // a timeout in addition
    Say(Ack(kOwnPsn + i));
  }
  EXPECT_EQ(Completed().size(), 3u);
}

// IBTA 9.9.2.4.1: retry_cnt repetitions after the first attempt, then the oldest request fails and
// the rest is flushed.
TEST_F(RcRequester, RetriesRunOutAndTheRestIsFlushed) {
  Link link;
  link.retry_count = 3;
  Begin(link);
  PostSends(2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(HearLater().size(), 2u);
  EXPECT_TRUE(HearLater().empty());
  EXPECT_EQ(Completed(), (Statuses{{0, IBV_WC_RETRY_EXC_ERR}, {1, kFlushed}}));
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  EXPECT_TRUE(HearLater().empty());
}

// A retry after a NAK counts, too.
TEST_F(RcRequester, SequenceNaksUseUpTheRetries) {
  Link link;
  link.retry_count = 0;
  Begin(link);
  PostSends(2);
  Say(Ack(kOwnPsn, Nak(wire::NakCode::kPsnSequence)));
  EXPECT_EQ(Completed(), (Statuses{{0, IBV_WC_RETRY_EXC_ERR}, {1, kFlushed}}));
}

// IBTA 9.7.6.1.3: timeout 0 waits forever.
TEST_F(RcRequester, TimeoutZeroNeverExpires) {
  Link link;
  link.timeout = 0;
  Begin(link);
  PostSends(1);
  EXPECT_FALSE(world.a.engine.NextDeadline().has_value());
}

// At first, at most max_unacked_packets are in transit. Without losses, each ACK permits as many
// further packets and widens the window by the same number.
TEST_F(RcRequester, AFullWindowStopsAndAnAckOpensIt) {
  Begin({}, IBV_QPT_RC, 300 * 1024);
  const uint32_t window = x.qp->device->profile.rc.max_unacked_packets;
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 300 * 1024)});
  world.Ring(x);
  const auto first = Hear();
  ASSERT_EQ(first.size(), window);
  // The last packet before a wait requests an ACK.
  EXPECT_TRUE(first.back().headers.ack_request);
  const auto more = Say(Ack(kOwnPsn + 49));
  ASSERT_EQ(more.size(), 100u);
  EXPECT_EQ(more.front().headers.psn, kOwnPsn + window);
  EXPECT_TRUE(more.back().headers.ack_request);
  Say(Ack(kOwnPsn + window + 49));
  Say(Ack(kOwnPsn + 299));
  EXPECT_EQ(Completed().size(), 1u);
}

// rxe's RXE_MAX_PKT_PER_ACK: a long message requests an ACK at this interval.
TEST_F(RcRequester, ALongMessageAsksForAnAckNowAndThen) {
  Begin({}, IBV_QPT_RC, 128 * 1024);
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 100 * 1024)});
  world.Ring(x);
  const auto all = Hear();
  ASSERT_EQ(all.size(), 100u);
  Numbers asking;
  for (const Out& one : all) {
    if (one.headers.ack_request) asking.push_back(one.headers.psn - kOwnPsn);
  }
  EXPECT_EQ(asking, (Numbers{63, 99}));
}

// IBTA 10.7.2.2: at most max_rd_atomic READs and atomics are in transit.
TEST_F(RcRequester, ReadsAndAtomicsBeyondTheDepthWaitForAnAnswer) {
  Link link;
  link.rd_atomic = 2;
  Begin(link);
  EXPECT_EQ(PostRead(8, 1).size(), 1u);
  EXPECT_EQ(PostFetchAdd(2).size(), 1u);
  EXPECT_TRUE(PostRead(8, 3).empty());
  EXPECT_TRUE(PostSends(1).empty());  // the order is kept
  EXPECT_EQ(Names(Say(Answer(kReadResponseOnly, kOwnPsn), std::span(full).first(8))),
            (Strings{"RC READ Request", "RC SEND Only"}));
}

// IBTA 9.6.1 (BTH, solicited event): only the last packet of a message has the bit.
TEST_F(RcRequester, TheSolicitedBitStandsInTheLastPacket) {
  Begin();
  x.Post(SendWr(IBV_WR_SEND, 1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), {x.Sge(0, 3000)});
  world.Ring(x);
  const auto all = Hear();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[0].headers.solicited);
  EXPECT_FALSE(all[1].headers.solicited);
  EXPECT_TRUE(all[2].headers.solicited);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
