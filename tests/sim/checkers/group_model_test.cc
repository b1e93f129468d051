// The model of a group's membership must accept a correct history and complain of each wrong one.
#include "tests/sim/checkers/group_model.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdmaemu::sim {
namespace {

class Group : public testing::Test {
 protected:
  static constexpr GroupModel::Join kJoin = 0;
  static constexpr GroupModel::Id kId = 1;

  void Join(bool fails = false) { model.Joined(kJoin, kId, "id", fails); }
  void Hears(CmEventKind event = CmEventKind::kMulticastJoin) { model.Event(kJoin, event); }
  void Leaves(int error, uint32_t events = 0, bool on_its_channel = true) {
    model.Left(kJoin, error, on_its_channel, events);
  }
  void ExpectGood() {
    model.Finish();
    EXPECT_TRUE(verdict.clean()) << verdict.complaints().front();
  }
  void ExpectBad() { EXPECT_EQ(verdict.complaints().size(), 1u); }

  Verdict verdict;
  GroupModel model{verdict};
};

TEST_F(Group, IsJoinedToldAndLeft) {
  Join();
  Hears();
  Leaves(EINVAL, 0, false);
  Leaves(0, 1);
  Leaves(ENOENT);
  ExpectGood();
}
TEST_F(Group, IsLeftBeforeAnybodyWasTold) {
  Join();
  Leaves(0, 0);
  ExpectGood();
}
TEST_F(Group, EndsWithItsId) {
  Join();
  model.IdGone(kId);
  Leaves(ENOENT);
  ExpectGood();
}
TEST_F(Group, CannotBeLeftWithoutItsDevice) {
  Join();
  model.IdRemoved(kId);
  Hears();
  Leaves(ENXIO);
  ExpectGood();
}
TEST_F(Group, FailsWhereTheAddressHasNoDevice) {
  Join(true);
  Hears(CmEventKind::kMulticastError);
  ExpectGood();
}

TEST_F(Group, EveryJoinIsTold) {
  Join();
  model.Finish();
  ExpectBad();
}
TEST_F(Group, AJoinIsToldOnce) {
  Join();
  Hears();
  Hears();
  ExpectBad();
}
TEST_F(Group, NothingIsToldOfWhatWasLeft) {
  Join();
  Leaves(0, 0);
  Hears();
  ExpectBad();
}
TEST_F(Group, NothingIsToldOfWhatNobodyJoined) {
  Hears();
  ExpectBad();
}
TEST_F(Group, AnErrorHasACause) {
  Join();
  Hears(CmEventKind::kMulticastError);
  ExpectBad();
}
TEST_F(Group, WhatCannotBeJoinedIsNotJoined) {
  Join(true);
  Hears();
  ExpectBad();
}
TEST_F(Group, LeavingSaysHowManyEventsWereTaken) {
  Join();
  Hears();
  Leaves(0, 0);
  ExpectBad();
}
TEST_F(Group, LeavingTwiceIsAnError) {
  Join();
  Leaves(0, 0);
  Leaves(0, 0);
  ExpectBad();
}
TEST_F(Group, IsItsChannelsAlone) {
  Join();
  Leaves(0, 0, false);
  ExpectBad();
}

}  // namespace
}  // namespace rdmaemu::sim
