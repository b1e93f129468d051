// The READs and atomics that a responder remembers, and its repeated responses (IBTA 9.7.5.1.5,
// rxe's duplicate_request). A repeated READ reads memory again, an atomic is never executed twice,
// and a request older than the resources is dropped silently.
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;
using Strings = std::vector<std::string>;

class RcResponderMemory : public ScriptedPeer {
 protected:
  // Returns the bytes of all responses, joined.
  static std::vector<std::byte> Payload(const std::vector<Out>& all) {
    std::vector<std::byte> bytes;
    for (const Out& one : all) bytes.insert(bytes.end(), one.payload.begin(), one.payload.end());
    return bytes;
  }
  bool IsBuffer(const std::vector<std::byte>& bytes, size_t offset) const {
    return std::equal(bytes.begin(), bytes.end(),
                      x.buffer.begin() + static_cast<ptrdiff_t>(offset));
  }
};

TEST_F(RcResponderMemory, ARepeatedReadIsAnsweredWholeAndTakesNoNewPsns) {
  Begin();
  FillPattern(x.buffer, 1);
  const auto request = Remote(kReadRequest, kPeerPsn, 64, 3000);
  const auto first = Say(request), second = Say(request);
  const Strings names = {"RC READ Response First", "RC READ Response Middle",
                         "RC READ Response Last"};
  EXPECT_EQ(Names(first), names);
  EXPECT_EQ(Names(second), names);
  EXPECT_EQ(Psns(second), (std::vector<uint32_t>{kPeerPsn, kPeerPsn + 1, kPeerPsn + 2}));
  EXPECT_TRUE(IsBuffer(Payload(second), 64));
  EXPECT_EQ(second[0].headers.msn, 1u);  // no new message
  EXPECT_EQ(Say(Remote(kReadRequest, kPeerPsn + 3, 0, 8))[0].headers.msn, 2u);
}

// IBTA 9.7.5.1.5: a repeated READ returns the current memory.
TEST_F(RcResponderMemory, ARepeatedReadBringsTheMemoryOfNow) {
  Begin();
  FillPattern(x.buffer, 1);
  const auto request = Remote(kReadRequest, kPeerPsn, 0, 2000);
  Say(request);
  FillPattern(x.buffer, 2);
  EXPECT_TRUE(IsBuffer(Payload(Say(request)), 0));
}

// A requester that misses responses requests them again, with the first missing PSN, and the
// address and length of the missing part. rxe's requester accepts that part as Middle and Last
// packets.
TEST_F(RcResponderMemory, TheRestOfAReadMayBeAskedFor) {
  Begin();
  FillPattern(x.buffer, 3);
  Say(Remote(kReadRequest, kPeerPsn, 0, 5000));
  const auto rest = Say(Remote(kReadRequest, kPeerPsn + 2, 2048, 5000 - 2048));
  EXPECT_EQ(Names(rest), (Strings{"RC READ Response Middle", "RC READ Response Middle",
                                  "RC READ Response Last"}));
  EXPECT_EQ(Psns(rest), (std::vector<uint32_t>{kPeerPsn + 2, kPeerPsn + 3, kPeerPsn + 4}));
  EXPECT_TRUE(IsBuffer(Payload(rest), 2048));
  const auto last = Say(Remote(kReadRequest, kPeerPsn + 4, 4096, 5000 - 4096));
  EXPECT_EQ(Names(last), Strings{"RC READ Response Last"});
  EXPECT_TRUE(IsBuffer(Payload(last), 4096));
}

TEST_F(RcResponderMemory, TheFirstPartOfAReadMayBeAskedForAlone) {
  Begin();
  FillPattern(x.buffer, 4);
  Say(Remote(kReadRequest, kPeerPsn, 0, 5000));
  const auto part = Say(Remote(kReadRequest, kPeerPsn, 0, 2048));
  EXPECT_EQ(Names(part), (Strings{"RC READ Response First", "RC READ Response Last"}));
  EXPECT_TRUE(IsBuffer(Payload(part), 0));
}

// rxe's duplicate_request: a repeated READ must be the same one or a part of it.
TEST_F(RcResponderMemory, ARepeatedReadOfOtherBytesIsDropped) {
  Begin();
  const auto request = Remote(kReadRequest, kPeerPsn, 1024, 2048);
  EXPECT_EQ(Say(request).size(), 2u);
  for (const auto change : {0, 1, 2, 3}) {
    SCOPED_TRACE(change);
    auto other = request;
    if (change == 0) other.remote_address -= 1;
    if (change == 1) other.remote_address += 1;
    if (change == 2) other.dma_length += 1;
    if (change == 3) other.rkey ^= 1;
    EXPECT_TRUE(Say(other).empty());
  }
  EXPECT_EQ(Say(request).size(), 2u);
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

// A length whose end overflows must not be accepted by this check.
TEST_F(RcResponderMemory, ARepeatedReadWhoseEndWrapsIsDropped) {
  Begin();
  auto request = Remote(kReadRequest, kPeerPsn, 0, 64);
  EXPECT_EQ(Say(request).size(), 1u);
  request.remote_address = ~0ull - 10;
  EXPECT_TRUE(Say(request).empty());
}

// rxe_recheck_mr: the responder checks the key again for every response.
TEST_F(RcResponderMemory, ARepeatedReadOfARegionThatIsGoneIsARemoteAccessError) {
  Begin();
  const auto request = Remote(kReadRequest, kPeerPsn, 0, 64);
  Say(request);
  ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, x.mr->handle).has_value());
  ExpectAck(Say(request), kPeerPsn, 1, Nak(wire::NakCode::kRemoteAccess));
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
}

TEST_F(RcResponderMemory, ARepeatWhileTheAnswerStillGoesOutBringsNoSecondAnswer) {
  Begin({}, IBV_QPT_RC, 400 * 1024);
  const auto request = Remote(kReadRequest, kPeerPsn, 0, 300 * 1024);
  Hand(request);
  world.a.engine.Work(world.now);  // one turn: it sends some of the 300
  const size_t begun = world.a.out.size();
  EXPECT_GT(begun, 0u);
  EXPECT_LT(begun, 300u);
  // The response starts anew, and only once.
  EXPECT_EQ(Say(request).size(), begun + 300);
}

// IBTA 9.7.5.1.5 (C9-112): the responder remembers max_dest_rd_atomic requests. Older ones are
// class D errors, which are dropped silently.
TEST_F(RcResponderMemory, WhatIsOlderThanTheResourcesIsDropped) {
  Link link;
  link.rd_atomic = 4;
  Begin(link);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Say(Remote(kReadRequest, kPeerPsn + i, i * 64, 64)).size(), 1u);
  }
  EXPECT_TRUE(Say(Remote(kReadRequest, kPeerPsn, 0, 64)).empty());
  for (uint32_t i = 1; i < 5; ++i) {
    EXPECT_EQ(Say(Remote(kReadRequest, kPeerPsn + i, i * 64, 64)).size(), 1u) << i;
  }
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

TEST_F(RcResponderMemory, AnAtomicOlderThanTheResourcesIsDroppedAndNotDoneAgain) {
  Link link;
  link.rd_atomic = 2;
  Begin(link);
  for (uint32_t i = 0; i < 3; ++i) Say(Atomic(kFetchAdd, kPeerPsn + i, 0, 10));
  EXPECT_EQ(WordAt(0), 30u);
  EXPECT_TRUE(Say(Atomic(kFetchAdd, kPeerPsn, 0, 10)).empty());
  EXPECT_EQ(WordAt(0), 30u);
}

// C9-112: a repeated atomic gets its first response, and memory does not change.
TEST_F(RcResponderMemory, ARepeatedFetchAddIsAnsweredFromMemoryAndNotDoneAgain) {
  Begin();
  SetWord(8, 100);
  const auto request = Atomic(kFetchAdd, kPeerPsn, 8, 7);
  for (int i = 0; i < 3; ++i) {
    const Out answer = One(Say(request));
    EXPECT_EQ(answer.name, "RC ATOMIC Acknowledge");
    EXPECT_EQ(answer.headers.psn, kPeerPsn);
    EXPECT_EQ(answer.headers.original, 100u);
    EXPECT_EQ(answer.headers.msn, 1u);
    EXPECT_EQ(answer.headers.syndrome, wire::kAethUnlimitedCredits);
  }
  EXPECT_EQ(WordAt(8), 107u);
}

TEST_F(RcResponderMemory, ARepeatedCompareSwapIsAnsweredFromMemoryAndNotDoneAgain) {
  Begin();
  SetWord(0, 5);
  const auto request = Atomic(kCompareSwap, kPeerPsn, 0, 6, 5);
  EXPECT_EQ(One(Say(request)).headers.original, 5u);
  EXPECT_EQ(WordAt(0), 6u);
  SetWord(0, 5);  // would match again
  EXPECT_EQ(One(Say(request)).headers.original, 5u);
  EXPECT_EQ(WordAt(0), 5u);
}

TEST_F(RcResponderMemory, EachOfSeveralAtomicsIsRememberedForItself) {
  Begin();
  for (uint32_t i = 0; i < 4; ++i) Say(Atomic(kFetchAdd, kPeerPsn + i, 0, 1));
  for (const uint32_t i : {2u, 0u, 3u, 1u}) {
    EXPECT_EQ(One(Say(Atomic(kFetchAdd, kPeerPsn + i, 0, 1))).headers.original, i);
  }
  EXPECT_EQ(WordAt(0), 4u);
}

TEST_F(RcResponderMemory, AnAtomicUnderThePsnOfAReadIsDropped) {
  Begin();
  Say(Remote(kReadRequest, kPeerPsn, 0, 64));
  EXPECT_TRUE(Say(Atomic(kFetchAdd, kPeerPsn, 0, 1)).empty());
  EXPECT_EQ(WordAt(0), 0u);
  Say(Atomic(kFetchAdd, kPeerPsn + 1, 0, 1));
  EXPECT_TRUE(Say(Remote(kReadRequest, kPeerPsn + 1, 0, 64)).empty());
}

// The responder remembers across the wrap: PSNs are compared over the shorter distance.
TEST_F(RcResponderMemory, RepeatsAreAnsweredAcrossTheWrapOfPsns) {
  x = world.Make(world.a, IBV_QPT_RC, 65536);
  y = world.Make(*world.other, IBV_QPT_RC, 4096);
  world.Connect(x, y, {}, kOwnPsn, 0xfffffe, true);
  FillPattern(x.buffer, 5);
  const auto read = Remote(kReadRequest, 0xfffffe, 1024, 4000);
  const std::vector<uint32_t> psns = {0xfffffe, 0xffffff, 0, 1};
  EXPECT_EQ(Psns(Say(read)), psns);
  EXPECT_EQ(Psns(Say(read)), psns);
  const auto rest = Say(Remote(kReadRequest, 0, 1024 + 2048, 4000 - 2048));
  EXPECT_EQ(Psns(rest), (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(IsBuffer(Payload(rest), 1024 + 2048));
  SetWord(0, 9);
  EXPECT_EQ(One(Say(Atomic(kFetchAdd, 2, 0, 1))).headers.original, 9u);
  EXPECT_EQ(Psns(Say(read)), psns);
  EXPECT_EQ(One(Say(Atomic(kFetchAdd, 2, 0, 1))).headers.original, 9u);
  EXPECT_EQ(WordAt(0), 10u);
}

// Each connection starts anew: after RESET the responder remembers nothing.
TEST_F(RcResponderMemory, ANewConnectionRemembersNothing) {
  Begin();
  SetWord(0, 1);
  Say(Atomic(kFetchAdd, kPeerPsn, 0, 1));
  world.SetState(x, IBV_QPS_RESET);
  world.Connect(x, y, {}, kOwnPsn, kPeerPsn + 1, true);
  EXPECT_TRUE(Say(Atomic(kFetchAdd, kPeerPsn, 0, 1)).empty());
  EXPECT_EQ(WordAt(0), 2u);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
