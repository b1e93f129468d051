// The model of an id must take a good history and complain of each that is not.
#include "tests/sim/checkers/cm_model.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdmaemu::sim {
namespace {

class Model : public testing::Test {
 protected:
  static constexpr CmModel::Id kId = 1, kListener = 2, kAsked = 3, kName = 4;

  Model() {
    model.Created(kId, "id", false);
    model.Created(kListener, "listener", false);
    model.Created(kName, "name", true);
  }
  void Works(CmApi call, CmModel::Id id = kId) { model.Answered(id, call, 0); }
  void Refused(CmApi call, int error, CmModel::Id id = kId) { model.Answered(id, call, error); }
  void Hears(CmEventKind event, int32_t status = 0, CmModel::Id id = kId) {
    model.Event(id, event, status);
  }
  void Connect(CmModel::Id id = kId) {
    Works(CmApi::kResolveAddress, id);
    Hears(CmEventKind::kAddrResolved, 0, id);
    Works(CmApi::kResolveRoute, id);
    Hears(CmEventKind::kRouteResolved, 0, id);
    Works(CmApi::kConnect, id);
  }
  void Establish() {
    Connect();
    Hears(CmEventKind::kConnectResponse);
    Works(CmApi::kEstablish);
  }
  void Request() {
    Works(CmApi::kBind, kListener);
    Works(CmApi::kListen, kListener);
    model.Requested(kListener, kAsked, "asked", false);
  }
  void Accept() {
    Request();
    Works(CmApi::kAccept, kAsked);
  }
  void ExpectGood() {
    model.Finish();
    EXPECT_TRUE(verdict.clean()) << verdict.complaints().front();
  }
  void ExpectBad() { EXPECT_EQ(verdict.complaints().size(), 1u); }

  Verdict verdict;
  CmModel model{verdict};
};

// ---- what is good

TEST_F(Model, TheActiveSidesLife) {
  Establish();
  Works(CmApi::kDisconnect);
  Hears(CmEventKind::kDisconnected, -ETIMEDOUT);
  Hears(CmEventKind::kTimewaitExit);
  Works(CmApi::kDestroy);
  ExpectGood();
  EXPECT_EQ(model.EventsOf(kId), 5u);
}
TEST_F(Model, ThePassiveSidesLife) {
  Accept();
  Works(CmApi::kNotify, kAsked);
  Hears(CmEventKind::kEstablished, 0, kAsked);
  Refused(CmApi::kNotify, EISCONN, kAsked);
  Hears(CmEventKind::kDisconnected, 0, kAsked);
  Works(CmApi::kDisconnect, kAsked);
  Hears(CmEventKind::kTimewaitExit, 0, kAsked);
  ExpectGood();
}
TEST_F(Model, ANamesLife) {
  Connect(kName);
  Hears(CmEventKind::kEstablished, 0, kName);
  Works(CmApi::kDisconnect, kName);
  ExpectGood();
}
TEST_F(Model, WhatIsOutOfPlaceIsRefused) {
  Refused(CmApi::kConnect, EINVAL);
  Refused(CmApi::kAccept, EINVAL);
  Refused(CmApi::kDisconnect, EINVAL);
  Refused(CmApi::kNotify, EINVAL);
  Works(CmApi::kDestroy);
  Refused(CmApi::kQuery, ENOENT);
  ExpectGood();
}
TEST_F(Model, AnIdMayTryAgainAfterAnAddressError) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrError, -ENODEV);
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrResolved);
  ExpectGood();
}
TEST_F(Model, AnAcceptThatFailsEndsTheAttempt) {
  Request();
  EXPECT_TRUE(model.Answered(kAsked, CmApi::kAccept, EINVAL, false));
  Refused(CmApi::kAccept, EINVAL, kAsked);
  ExpectGood();
}

// ---- events that may not come

TEST_F(Model, NothingIsResolvedUnasked) {
  Hears(CmEventKind::kAddrResolved);
  ExpectBad();
}
TEST_F(Model, ARouteNeedsAnAddressFirst) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kRouteResolved);
  ExpectBad();
}
TEST_F(Model, ARequestNeedsAListener) {
  model.Requested(kListener, kAsked, "asked", false);
  ExpectBad();
}
TEST_F(Model, ARequestBringsANewId) {
  Request();
  model.Requested(kListener, kAsked, "asked", false);
  ExpectBad();
}
TEST_F(Model, AResponseNeedsAConnect) {
  Hears(CmEventKind::kConnectResponse);
  ExpectBad();
}
TEST_F(Model, AResponseComesOnce) {
  Connect();
  Hears(CmEventKind::kConnectResponse);
  Hears(CmEventKind::kConnectResponse);
  ExpectBad();
}
TEST_F(Model, TheActiveSideIsEstablishedByItsOwnCall) {
  Connect();
  Hears(CmEventKind::kEstablished);
  ExpectBad();
}
TEST_F(Model, ARequestIsEstablishedAfterItsAccept) {
  Request();
  Hears(CmEventKind::kEstablished, 0, kAsked);
  ExpectBad();
}
TEST_F(Model, EstablishedComesOnce) {
  Accept();
  Hears(CmEventKind::kEstablished, 0, kAsked);
  Hears(CmEventKind::kEstablished, 0, kAsked);
  ExpectBad();
}
TEST_F(Model, NobodyIsRejectedBeforeItAsks) {
  Request();
  Hears(CmEventKind::kRejected, 28, kAsked);
  ExpectBad();
}
TEST_F(Model, ARejectionEndsTheAttempt) {
  Connect();
  Hears(CmEventKind::kRejected, 28);
  Hears(CmEventKind::kConnectResponse);
  ExpectBad();
}
TEST_F(Model, ARejectionHasAReason) {
  Connect();
  Hears(CmEventKind::kRejected);
  ExpectBad();
}
TEST_F(Model, NamesAreNotRejected) {
  Connect(kName);
  Hears(CmEventKind::kRejected, 28, kName);
  ExpectBad();
}
TEST_F(Model, WhoIsAnsweredIsReachable) {
  Connect();
  Hears(CmEventKind::kConnectResponse);
  Hears(CmEventKind::kUnreachable, -ETIMEDOUT);
  ExpectBad();
}
TEST_F(Model, UnreachableSaysWhy) {
  Connect();
  Hears(CmEventKind::kUnreachable, -EINVAL);
  ExpectBad();
}
TEST_F(Model, ANamesStatusIsOneThatIsGiven) {
  Connect(kName);
  Hears(CmEventKind::kUnreachable, 9, kName);
  ExpectBad();
}
TEST_F(Model, OnlyAConnectionIsDisconnected) {
  Connect();
  Hears(CmEventKind::kDisconnected);
  ExpectBad();
}
TEST_F(Model, DisconnectedComesOnce) {
  Establish();
  Hears(CmEventKind::kDisconnected);
  Hears(CmEventKind::kDisconnected);
  ExpectBad();
}
TEST_F(Model, OnlyWhoAskedForTheEndWaitsForItInVain) {
  Establish();
  Hears(CmEventKind::kDisconnected, -ETIMEDOUT);
  ExpectBad();
}
TEST_F(Model, TimewaitFollowsTheEnd) {
  Establish();
  Hears(CmEventKind::kTimewaitExit);
  ExpectBad();
}
TEST_F(Model, TimewaitEndsOnce) {
  Establish();
  Hears(CmEventKind::kDisconnected);
  Hears(CmEventKind::kTimewaitExit);
  Hears(CmEventKind::kTimewaitExit);
  ExpectBad();
}
TEST_F(Model, GoodNewsHasNoStatus) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrResolved, -EINVAL);
  ExpectBad();
}
TEST_F(Model, NothingIsHeardAfterTheEnd) {
  Connect();
  Works(CmApi::kDestroy);
  Hears(CmEventKind::kRejected, 28);
  ExpectBad();
}
TEST_F(Model, NothingIsHeardAfterTheDevicesRemoval) {
  Connect();
  Hears(CmEventKind::kDeviceRemoval);
  EXPECT_FALSE(verdict.clean());
}

// ---- answers that may not be given

TEST_F(Model, NothingWorksOutOfPlace) {
  Works(CmApi::kConnect);
  ExpectBad();
}
TEST_F(Model, WhatHasGoneIsUnknown) {
  Works(CmApi::kDestroy);
  Refused(CmApi::kConnect, EINVAL);
  ExpectBad();
}
TEST_F(Model, ACallInItsPlaceWorks) {
  Refused(CmApi::kResolveAddress, EINVAL);
  ExpectBad();
}
TEST_F(Model, ARefusalHasItsErrno) {
  Refused(CmApi::kConnect, EIO);
  ExpectBad();
}
TEST_F(Model, APortMayBeTakenOnlyWhereOneIsBound) {
  Refused(CmApi::kConnect, EADDRINUSE);
  ExpectBad();
}
TEST_F(Model, TooMuchPrivateDataIsRefused) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrResolved);
  Works(CmApi::kResolveRoute);
  Hears(CmEventKind::kRouteResolved);
  model.Answered(kId, CmApi::kConnect, 0, false);
  ExpectBad();
}
TEST_F(Model, WhatIsConnectedSaysSo) {
  Establish();
  Refused(CmApi::kNotify, EINVAL);
  ExpectBad();
}
TEST_F(Model, ADestroyAlwaysWorks) {
  Establish();
  Refused(CmApi::kDestroy, EINVAL);
  ExpectBad();
}

// ---- ends that never come

TEST_F(Model, EveryQuestionIsAnswered) {
  Works(CmApi::kResolveAddress);
  model.Finish();
  ExpectBad();
}
TEST_F(Model, EveryConnectEnds) {
  Connect();
  model.Finish();
  ExpectBad();
}
TEST_F(Model, EveryAcceptEnds) {
  Accept();
  model.Finish();
  ExpectBad();
}
TEST_F(Model, EveryDisconnectEnds) {
  Establish();
  Works(CmApi::kDisconnect);
  model.Finish();
  ExpectBad();
}
TEST_F(Model, EveryTimewaitEnds) {
  Establish();
  Hears(CmEventKind::kDisconnected);
  Works(CmApi::kDisconnect);
  model.Finish();
  ExpectBad();
}

}  // namespace
}  // namespace rdmaemu::sim
