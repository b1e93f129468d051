// Each checker gets a correct history, of which it must not complain, and wrong histories, of which
// it must. A checker that cannot fail proves nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/sim/checkers/atomic_checker.h"
#include "tests/sim/checkers/cm_checker.h"
#include "tests/sim/checkers/completion_checker.h"
#include "tests/sim/checkers/delivery_checker.h"
#include "tests/sim/checkers/event_checker.h"
#include "tests/sim/checkers/memory_model.h"

namespace rdmaemu::sim {
namespace {

constexpr Time At(int64_t ns) { return Time{} + Duration(ns); }

template <size_t N>
std::vector<std::byte> Bytes(const char (&text)[N]) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  return {bytes, bytes + N - 1};
}

// ---- completions

class Completions : public ::testing::Test {
 protected:
  using Checker = CompletionChecker;
  using Ended = Checker::Ended;
  Completions() {
    queue = checker.Open(Checker::Kind::kSend, "queue");
    for (uint64_t id = 1; id <= 4; id++) checker.Post(queue, id, id % 2 == 0);
  }
  Verdict verdict;
  Checker checker{verdict};
  Checker::Queue queue;
};

TEST_F(Completions, InOrderOneForEachSignalledRequestIsGood) {
  checker.Complete(queue, 2, Ended::kSuccess);
  checker.Complete(queue, 4, Ended::kSuccess);
  checker.ExpectAllEnded(queue);
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Completions, ASignalledRequestMayNotBeOvertaken) {
  checker.Complete(queue, 4, Ended::kSuccess);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, NoneComesTwice) {
  checker.Complete(queue, 2, Ended::kSuccess);
  checker.Complete(queue, 2, Ended::kSuccess);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, NoneComesForWhatWasNotPosted) {
  checker.Complete(queue, 9, Ended::kSuccess);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, NoneIsLost) {
  checker.Complete(queue, 2, Ended::kSuccess);
  checker.ExpectAllEnded(queue);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, NothingIsFlushedBeforeAnError) {
  checker.Complete(queue, 1, Ended::kFlushed);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, AfterAnErrorAllAreFlushedUnsignalledToo) {
  checker.Complete(queue, 2, Ended::kError);
  checker.Complete(queue, 3, Ended::kFlushed);
  checker.Complete(queue, 4, Ended::kFlushed);
  checker.ExpectAllEnded(queue);
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Completions, AfterAnErrorNoneIsLeftOut) {
  checker.Complete(queue, 2, Ended::kError);
  checker.Complete(queue, 4, Ended::kFlushed);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, AfterAnErrorNoneSucceeds) {
  checker.Complete(queue, 2, Ended::kError);
  checker.Complete(queue, 3, Ended::kSuccess);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, NoneComesAfterTheEndOfTheQueue) {
  checker.Close(queue);
  checker.Complete(queue, 2, Ended::kSuccess);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, OfASharedQueueOnlyAsManyAreOvertakenAsQpsCanHold) {
  const Checker::Queue shared = checker.Open(Checker::Kind::kShared, "shared");
  for (uint64_t id = 1; id <= 3; id++) checker.Post(shared, id, true);
  checker.SetHolders(shared, 1);
  checker.Complete(shared, 2, Ended::kSuccess);
  checker.Settled();
  EXPECT_TRUE(verdict.clean());
  checker.Post(shared, 4, true);
  checker.Complete(shared, 4, Ended::kSuccess);
  checker.Settled();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Completions, OfASharedQueueComeInNoOrderFromOnePollOfSeveralQueues) {
  const Checker::Queue shared = checker.Open(Checker::Kind::kShared, "shared");
  for (uint64_t id = 1; id <= 5; id++) checker.Post(shared, id, true);
  checker.SetHolders(shared, 1);
  for (const uint64_t id : {4, 2, 1}) checker.Complete(shared, id, Ended::kSuccess);
  checker.Settled();
  EXPECT_TRUE(verdict.clean()) << "only 3 is held";
  checker.Complete(shared, 5, Ended::kSuccess);
  checker.Settled();
  EXPECT_TRUE(verdict.clean()) << "still only 3";
}
TEST_F(Completions, OfASharedQueueTheOvertakenAreCountedOverAllPolls) {
  const Checker::Queue shared = checker.Open(Checker::Kind::kShared, "shared");
  for (uint64_t id = 1; id <= 5; id++) checker.Post(shared, id, true);
  checker.SetHolders(shared, 2);
  for (const uint64_t id : {5, 4, 1}) {
    checker.Complete(shared, id, Ended::kSuccess);
  }
  checker.Settled();
  EXPECT_TRUE(verdict.clean()) << "2 and 3 are held";
  checker.SetHolders(shared, 1);
  checker.Settled();
  EXPECT_FALSE(verdict.clean());
}

// ---- delivery

class Delivery : public ::testing::Test {
 protected:
  using Promise = DeliveryChecker::Promise;
  static Message OfLength(uint64_t tag, uint32_t length) {
    Message message;
    message.tag = tag;
    message.length = length;
    return message;
  }
  DeliveryChecker::Stream Three(Promise promise) {
    const auto stream = checker.Open(promise, "stream");
    for (uint64_t tag = 1; tag <= 3; tag++) {
      checker.Sent(stream, OfLength(tag, static_cast<uint32_t>(tag)));
    }
    return stream;
  }
  Verdict verdict;
  DeliveryChecker checker{verdict};
};

TEST_F(Delivery, ReliableInOrderIsGood) {
  const auto stream = Three(Promise::kExactlyOnceInOrder);
  for (uint64_t tag = 1; tag <= 3; tag++) {
    checker.Arrived(stream, OfLength(tag, static_cast<uint32_t>(tag)));
  }
  checker.Acknowledged(stream, 2);
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Delivery, ReliableMayNotSkip) {
  const auto stream = Three(Promise::kExactlyOnceInOrder);
  checker.Arrived(stream, OfLength(2, 2));
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, ReliableMayNotRepeat) {
  const auto stream = Three(Promise::kExactlyOnceInOrder);
  checker.Arrived(stream, OfLength(1, 1));
  checker.Arrived(stream, OfLength(1, 1));
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, ReliableMayNotInvent) {
  const auto stream = checker.Open(Promise::kExactlyOnceInOrder, "stream");
  checker.Arrived(stream, OfLength(1, 1));
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, ReliableMayNotChangeTheImmediate) {
  const auto stream = checker.Open(Promise::kExactlyOnceInOrder, "stream");
  Message message = OfLength(1, 1);
  message.immediate = 5;
  checker.Sent(stream, message);
  message.immediate = 6;
  checker.Arrived(stream, message);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, NothingIsAcknowledgedThatHasNotArrived) {
  const auto stream = Three(Promise::kExactlyOnceInOrder);
  checker.Acknowledged(stream, 0);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, UnreliableConnectedMaySkipAndMayNotGoBack) {
  const auto stream = Three(Promise::kAtMostOnceInOrder);
  checker.Arrived(stream, OfLength(2, 2));
  EXPECT_TRUE(verdict.clean());
  checker.Arrived(stream, OfLength(1, 1));
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Delivery, DatagramsMayComeInAnyOrderAndOnlyOnce) {
  const auto stream = Three(Promise::kAtMostOnce);
  checker.Arrived(stream, OfLength(3, 3));
  checker.Arrived(stream, OfLength(1, 1));
  EXPECT_TRUE(verdict.clean());
  checker.Arrived(stream, OfLength(3, 3));
  EXPECT_FALSE(verdict.clean());
}

// ---- memory

class MemoryIs : public ::testing::Test {
 protected:
  std::array<std::byte, 64> actual{};
  Verdict verdict;
  MemoryModel model{verdict, "memory", actual};
  void Put(size_t offset, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), actual.begin() + static_cast<ptrdiff_t>(offset));
  }
};

TEST_F(MemoryIs, GoodWhenAnOperationWritesItsTarget) {
  const auto claim = model.Expect(8, Bytes("abcd"));
  model.Written(8, 2);
  Put(8, Bytes("ab"));
  model.Check();
  Put(8, Bytes("abcd"));
  model.Done(claim);
  model.Check();
  EXPECT_TRUE(verdict.clean());
}
TEST_F(MemoryIs, NotWrittenOutsideOfTargets) {
  model.Expect(8, Bytes("abcd"));
  model.Written(8, 5);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, NotChangedOutsideOfTargets) {
  actual[20] = std::byte{1};
  model.Check();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, TheOperationsWhenItHasCompleted) {
  model.Done(model.Expect(8, Bytes("abcd")));
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, OldOrNewUntilThen) {
  model.Expect(8, Bytes("abcd"));
  Put(8, Bytes("x"));
  model.Check();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, NotWrittenLateAfterCompletion) {
  const auto claim = model.Expect(8, Bytes("abcd"));
  Put(8, Bytes("abcd"));
  model.Done(claim);
  model.Written(8, 4);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, NotWrittenOnceTheRightHasEnded) {
  const auto half = model.Expect(8, Bytes("abcd")), whole = model.Expect(16, Bytes("abcd"));
  Put(8, Bytes("ab"));
  Put(16, Bytes("abcd"));
  EXPECT_FALSE(model.Revoke(half));
  EXPECT_TRUE(model.Revoke(whole));
  model.Done(half);  // ended already
  EXPECT_TRUE(verdict.clean());
  model.Written(10, 2);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(MemoryIs, OfAReceiveWhatWasSentAndUntouchedBehind) {
  const auto good = model.Lend(0, 8), wrong = model.Lend(16, 8), behind = model.Lend(32, 8);
  Put(0, Bytes("abcd"));
  model.DoneLent(good, Bytes("abcd"));
  EXPECT_TRUE(verdict.clean());
  Put(16, Bytes("abXd"));
  model.DoneLent(wrong, Bytes("abcd"));
  EXPECT_EQ(verdict.complaints().size(), 1u);
  Put(32, Bytes("abcde"));
  model.DoneLent(behind, Bytes("abcd"));
  EXPECT_EQ(verdict.complaints().size(), 2u);
}

// ---- atomics

class Atomics : public ::testing::Test {
 protected:
  Verdict verdict;
  AtomicChecker checker{verdict};
  AtomicChecker::Word word = checker.Open("word");
  void Add(uint64_t bit, int64_t posted, int64_t ended, uint64_t original) {
    checker.Ended(word, checker.Add(word, At(posted), bit), At(ended), original);
  }
  void Swap(uint64_t compare, uint64_t swap, int64_t posted, int64_t ended, uint64_t original) {
    checker.Ended(word, checker.Swap(word, At(posted), compare, swap), At(ended), original);
  }
};

TEST_F(Atomics, AdditionsInOneOrderAreGood) {
  Add(1, 0, 10, 0);
  Add(4, 1, 9, 3);  // the unknown one happened before
  checker.Add(word, At(2), 2);
  checker.Finish(word, 7);
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Atomics, AnAdditionMayNotGetLost) {
  Add(1, 0, 10, 0);
  checker.Finish(word, 0);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, AnAdditionMayNotHappenTwice) {
  Add(1, 0, 10, 0);
  checker.Finish(word, 2);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, TwoAdditionsMayNotFindTheSameValue) {
  Add(1, 0, 10, 0);
  Add(2, 0, 10, 0);
  checker.Finish(word, 3);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, AnAdditionSeesWhatEndedBeforeItWasPosted) {
  Add(1, 0, 10, 2);
  Add(2, 20, 30, 0);
  checker.Finish(word, 3);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, SwapsInAChainAreGood) {
  Swap(0, 7, 0, 10, 0);
  Swap(0, 8, 0, 10, 7);  // found another value, and changed nothing
  checker.Swap(word, At(5), 7, 9);
  Swap(9, 11, 20, 30, 9);
  checker.Finish(word, 11);
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Atomics, OneValueIsSwappedOnce) {
  Swap(0, 7, 0, 10, 0);
  Swap(0, 8, 0, 10, 0);
  checker.Finish(word, 8);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, ASwapThatFoundAnotherValueChangesNothing) {
  Swap(5, 7, 0, 10, 0);
  checker.Finish(word, 7);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, ASwapFindsWhatTheWordHeld) {
  Swap(0, 7, 0, 10, 0);
  Swap(1, 8, 0, 10, 99);
  checker.Finish(word, 7);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Atomics, ASwapDoesNotFindWhatWasOverBeforeItWasPosted) {
  Swap(0, 7, 0, 10, 0);
  Swap(5, 8, 20, 30, 0);
  checker.Finish(word, 7);
  EXPECT_FALSE(verdict.clean());
}

// ---- connection management

class Connecting : public ::testing::Test {
 protected:
  static constexpr CmChecker::Id kListener = 1, kActive = 2, kPassive = 3;
  Connecting() {
    checker.Created(kListener, "listener", false);
    checker.Called(kListener, CmCallKind::kListen);
    checker.Created(kActive, "active", false);
  }
  void Request() {
    checker.Called(kActive, CmCallKind::kConnect, {1, 2});
    checker.Requested(kListener, kPassive, "passive", kActive, heard);
  }
  void Establish() {
    Request();
    checker.Called(kPassive, CmCallKind::kAccept, {3});
    checker.Event(kActive, CmEventKind::kConnectResponse, 0, std::array<uint8_t, 2>{3, 0});
    checker.Called(kActive, CmCallKind::kEstablish);
    checker.Event(kPassive, CmEventKind::kEstablished, 0, {});
  }
  std::vector<uint8_t> heard{1, 2, 0, 0};
  Verdict verdict;
  CmChecker checker{verdict};
};

TEST_F(Connecting, ConnectionFromBeginningToEndIsGood) {
  Establish();
  checker.Called(kActive, CmCallKind::kDisconnect);
  checker.Event(kPassive, CmEventKind::kDisconnected, 0, {});
  checker.Event(kActive, CmEventKind::kDisconnected, 0, {});
  checker.Event(kActive, CmEventKind::kTimewaitExit, 0, {});
  checker.Finish();
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Connecting, OneConnectIsOneRequest) {
  Request();
  checker.Requested(kListener, 4, "another", kActive, heard);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, PrivateDataIsWhatTheOtherSideSaid) {
  heard[0] = 9;
  Request();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoResponseBeforeTheAccept) {
  Request();
  checker.Event(kActive, CmEventKind::kConnectResponse, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoEstablishedBeforeTheOtherSideIsReady) {
  Request();
  checker.Called(kPassive, CmCallKind::kAccept);
  checker.Event(kPassive, CmEventKind::kEstablished, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoDisconnectedThatNobodyAskedFor) {
  Establish();
  checker.Event(kPassive, CmEventKind::kDisconnected, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, DisconnectedComesOnce) {
  Establish();
  checker.Called(kActive, CmCallKind::kDisconnect);
  checker.Event(kPassive, CmEventKind::kDisconnected, 0, {});
  checker.Event(kPassive, CmEventKind::kDisconnected, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoTimewaitBeforeTheEnd) {
  Establish();
  checker.Event(kActive, CmEventKind::kTimewaitExit, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NothingIsHeardAfterDestroying) {
  Establish();
  checker.Called(kActive, CmCallKind::kDisconnect);
  checker.Called(kPassive, CmCallKind::kDestroy);
  checker.Event(kPassive, CmEventKind::kDisconnected, 0, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoUnreachableWhenNobodyWasAway) {
  Request();
  checker.Event(kActive, CmEventKind::kUnreachable, -110, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, NoRejectionThatNobodyMade) {
  Request();
  checker.Event(kActive, CmEventKind::kRejected, 28, {});
  EXPECT_FALSE(verdict.clean());
}
// The network repeats the request. Its first copy is refused, the second meets the new listener.
TEST_F(Connecting, ARejectionFromBeforeTheListenerWasMade) {
  constexpr CmChecker::Id kNew = 4;
  checker.Called(kActive, CmCallKind::kConnect, {1, 2});
  checker.Created(kNew, "new listener", false);
  checker.Called(kNew, CmCallKind::kListen);
  checker.Requested(kNew, kPassive, "passive", kActive, heard);
  checker.Event(kActive, CmEventKind::kRejected, 28, {});
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Connecting, NoStaleConnectionWithoutOne) {
  Request();
  checker.Event(kActive, CmEventKind::kRejected, 10, {});
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, ThePassiveSideMaySayItselfThatItIsEstablished) {
  Request();
  checker.Called(kPassive, CmCallKind::kAccept);
  checker.Called(kPassive, CmCallKind::kNotify);
  checker.Event(kPassive, CmEventKind::kEstablished, 0, {});
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Connecting, EveryConnectEnds) {
  Request();
  checker.Finish();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Connecting, EveryDisconnectEnds) {
  Establish();
  checker.Called(kPassive, CmCallKind::kDisconnect);
  checker.Finish();
  EXPECT_FALSE(verdict.clean());
}

// ---- completion events

class Events : public ::testing::Test {
 protected:
  Verdict verdict;
  EventChecker checker{verdict};
  EventChecker::Queue queue = checker.Open("queue");
};

TEST_F(Events, OneForEachArming) {
  checker.Armed(queue, false);
  checker.Completed(queue, false);
  checker.Completed(queue, false);
  checker.Raised(queue);
  checker.Settled();
  EXPECT_TRUE(verdict.clean());
}
TEST_F(Events, NoneIsLost) {
  checker.Armed(queue, false);
  checker.Completed(queue, false);
  checker.Settled();
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Events, NoneWithoutArming) {
  checker.Completed(queue, true);
  checker.Raised(queue);
  EXPECT_FALSE(verdict.clean());
}
TEST_F(Events, ASolicitedArmingWaitsForASolicitedCompletion) {
  checker.Armed(queue, true);
  checker.Completed(queue, false);
  checker.Settled();
  EXPECT_TRUE(verdict.clean());
  checker.Raised(queue);
  EXPECT_FALSE(verdict.clean());
}

}  // namespace
}  // namespace rdmaemu::sim
