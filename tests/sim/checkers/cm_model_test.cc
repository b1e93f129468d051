// The model of an id must accept a correct history and complain of each wrong one.
#include "tests/sim/checkers/cm_model.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdmaemu::sim {
namespace {

class Model : public testing::Test {
 protected:
  static constexpr CmModel::Id kId = 1, kListener = 2, kAsked = 3, kName = 4;
  static constexpr uint32_t kDevice = 7;

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
  // Binds an id to the device.
  void BindTo(uint32_t device, CmModel::Id id = kId) {
    Works(CmApi::kBind, id);
    model.Attached(id, device);
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

// ---- correct histories

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
  model.ExpectAddressError(kId);
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

// ---- events that are not allowed

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

// ---- results that are not allowed

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

// ---- operations that never end

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

// ---- devices

TEST_F(Model, AnIdOfARemovedDeviceHearsOfItAndIsDestroyed) {
  BindTo(kDevice);
  model.Removed(kDevice);
  Refused(CmApi::kMigrate, ENXIO);
  Hears(CmEventKind::kDeviceRemoval);
  Refused(CmApi::kListen, ENXIO);
  Refused(CmApi::kDisconnect, ENXIO);
  Works(CmApi::kDestroy);
  Refused(CmApi::kQuery, ENOENT);
  ExpectGood();
}
TEST_F(Model, WhatCameBeforeTheRemovalIsHeardBeforeIt) {
  Works(CmApi::kResolveAddress);
  model.Attached(kId, kDevice);
  model.Removed(kDevice);
  Hears(CmEventKind::kAddrResolved);
  Hears(CmEventKind::kDeviceRemoval);
  ExpectGood();
}
TEST_F(Model, ARequestNobodyHasAcceptedHearsOfNoRemoval) {
  Request();
  model.Attached(kAsked, kDevice);
  model.Removed(kDevice);
  Refused(CmApi::kAccept, ENXIO, kAsked);
  Works(CmApi::kDestroy, kAsked);
  ExpectGood();
}
TEST_F(Model, ARequestOfARemovedDeviceIsOfNoUse) {
  Request();
  model.RequestRemoved(kAsked);
  Refused(CmApi::kReject, ENXIO, kAsked);
  ExpectGood();
}
TEST_F(Model, WhoWaitsWhenTheDeviceGoesWaitsForNothingElse) {
  Connect();
  model.Attached(kId, kDevice);
  model.Removed(kDevice);
  EXPECT_TRUE(model.IsWaiting(kId));
  Hears(CmEventKind::kDeviceRemoval);
  EXPECT_FALSE(model.IsWaiting(kId));
  ExpectGood();
}
TEST_F(Model, AMovedAddressChangesNothingElse) {
  BindTo(kDevice);
  model.AddressMoved(kId);
  Hears(CmEventKind::kAddrChange);
  Works(CmApi::kListen);
  ExpectGood();
}
TEST_F(Model, WhatTheDevicesAskForIsAnswered) {
  model.Answered(kId, CmApi::kBind, ENODEV, true, ENODEV);
  model.Answered(kId, CmApi::kResolveAddress, ENETUNREACH, true, ENETUNREACH);
  Refused(CmApi::kBind, EINVAL);  // it is bound to a wildcard now
  ExpectGood();
}

TEST_F(Model, NothingIsHeardAfterTheDevicesRemoval) {
  Connect();
  model.Attached(kId, kDevice);
  model.Removed(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  Hears(CmEventKind::kRejected, 28);
  ExpectBad();
}
TEST_F(Model, ADeviceThatIsThereIsNotRemoved) {
  BindTo(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  ExpectBad();
}
TEST_F(Model, AnotherDevicesRemovalIsNotHeard) {
  BindTo(kDevice);
  model.Removed(kDevice + 1);
  Hears(CmEventKind::kDeviceRemoval);
  ExpectBad();
}
TEST_F(Model, AWildcardListenerHearsOfNoRemoval) {
  Works(CmApi::kListen);
  model.Removed(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  ExpectBad();
}
TEST_F(Model, ARemovalIsHeardOnce) {
  BindTo(kDevice);
  model.Removed(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  Hears(CmEventKind::kDeviceRemoval);
  ExpectBad();
}
TEST_F(Model, ARemovalIsHeardByAll) {
  BindTo(kDevice);
  BindTo(kDevice, kListener);
  model.Removed(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  model.Finish();
  ExpectBad();
}
TEST_F(Model, ARemovalIsHeardInTheOrderInWhichIdsGotTheDevice) {
  BindTo(kDevice, kListener);
  BindTo(kDevice);
  model.Removed(kDevice);
  Hears(CmEventKind::kDeviceRemoval);
  Hears(CmEventKind::kDeviceRemoval, 0, kListener);
  ExpectBad();
}
TEST_F(Model, NothingWorksWithoutItsDevice) {
  BindTo(kDevice);
  model.Removed(kDevice);
  Works(CmApi::kListen);
  ExpectBad();
}
TEST_F(Model, WithoutItsDeviceTheErrnoIsEnxio) {
  BindTo(kDevice);
  model.Removed(kDevice);
  Refused(CmApi::kListen, EINVAL);
  ExpectBad();
}
TEST_F(Model, WithoutItsDeviceAnIdCanBeDestroyed) {
  BindTo(kDevice);
  model.Removed(kDevice);
  Refused(CmApi::kDestroy, ENXIO);
  ExpectBad();
}
TEST_F(Model, AnAddressThatStaysIsNoChange) {
  BindTo(kDevice);
  Hears(CmEventKind::kAddrChange);
  ExpectBad();
}
TEST_F(Model, AMoveIsHeard) {
  BindTo(kDevice);
  model.AddressMoved(kId);
  model.Finish();
  ExpectBad();
}
TEST_F(Model, AnAddressWithoutADeviceIsNotResolved) {
  Works(CmApi::kResolveAddress);
  model.ExpectAddressError(kId);
  Hears(CmEventKind::kAddrResolved);
  ExpectBad();
}
TEST_F(Model, AnAddressWithADeviceIsResolved) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrError, -ENODEV);
  ExpectBad();
}
TEST_F(Model, WhatTheDevicesForbidDoesNotWork) {
  model.Answered(kId, CmApi::kBind, 0, true, ENODEV);
  ExpectBad();
}

// ---- options, attributes, groups

TEST_F(Model, OptionsHaveTheirTimes) {
  Works(CmApi::kSetReuseAddress);
  Works(CmApi::kSetAfOnly);
  Works(CmApi::kSetTypeOfService);
  Works(CmApi::kListen);
  Refused(CmApi::kSetReuseAddress, EINVAL);
  Refused(CmApi::kSetAfOnly, EINVAL);
  Works(CmApi::kSetTypeOfService);
  ExpectGood();
}
TEST_F(Model, APathTakesTheResolutionsPlace) {
  Works(CmApi::kResolveAddress);
  Hears(CmEventKind::kAddrResolved);
  Works(CmApi::kSetPath);
  Hears(CmEventKind::kRouteResolved);
  Works(CmApi::kConnect);
  Hears(CmEventKind::kRejected, 28);
  ExpectGood();
}
TEST_F(Model, AttributesNeedADevice) {
  Works(CmApi::kInitQpAttr);
  ExpectBad();
}
TEST_F(Model, WhoAsksHasNoAttributesForRtrYet) {
  Connect();
  model.Attached(kId, kDevice);
  Works(CmApi::kInitQpAttr);
  Works(CmApi::kReadyQpAttr);
  ExpectBad();
}
TEST_F(Model, AConnectionHasAttributesUntilItEnds) {
  Establish();
  model.Attached(kId, kDevice);
  Works(CmApi::kReadyQpAttr);
  Works(CmApi::kDisconnect);
  Refused(CmApi::kReadyQpAttr, EINVAL);
  Works(CmApi::kReadyQpAttr);
  ExpectBad();
}
TEST_F(Model, OnlyNamesJoinGroups) {
  BindTo(kDevice, kName);
  Works(CmApi::kJoin, kName);
  BindTo(kDevice);
  Works(CmApi::kJoin);
  ExpectBad();
}
TEST_F(Model, WhoConnectsHasJoinedBefore) {
  BindTo(kDevice, kName);
  Connect(kName);
  Works(CmApi::kJoin, kName);
  ExpectBad();
}

}  // namespace
}  // namespace rdmaemu::sim
