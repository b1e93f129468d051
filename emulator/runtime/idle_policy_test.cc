#include "emulator/runtime/idle_policy.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

using Step = IdlePolicy::Step;
constexpr Time At(int64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

TEST(IdlePolicy, ScansThenYieldsThenSleeps) {
  IdlePolicy policy;
  for (uint32_t i = 0; i < IdlePolicy::kScansBeforeYield; i++) {
    EXPECT_EQ(policy.Next(false, At(0)), Step::kScan);
  }
  EXPECT_EQ(policy.Next(false, At(1)), Step::kYield);
  for (uint32_t i = 0; i < 1000; i++) EXPECT_EQ(policy.Next(false, At(49)), Step::kYield);
  EXPECT_EQ(policy.Next(false, At(50)), Step::kSleep);
}

TEST(IdlePolicy, AHostWithoutPeersScansLonger) {
  IdlePolicy policy;
  policy.HasNoPeers(true);
  for (uint32_t i = 0; i < IdlePolicy::kScansWithoutPeers; i++) {
    EXPECT_EQ(policy.Next(false, At(0)), Step::kScan);
  }
  EXPECT_EQ(policy.Next(false, At(1)), Step::kYield);
  policy.Next(true, At(2));
  policy.HasNoPeers(false);
  for (uint32_t i = 0; i < IdlePolicy::kScansBeforeYield; i++) {
    EXPECT_EQ(policy.Next(false, At(2)), Step::kScan);
  }
  EXPECT_EQ(policy.Next(false, At(3)), Step::kYield);
}

TEST(IdlePolicy, ALongYieldIsFollowedByScansBeforeItSleeps) {
  IdlePolicy policy;
  while (policy.Next(false, At(1'000'000)) == Step::kScan) {
  }
  EXPECT_EQ(policy.Next(false, At(1'010'000)), Step::kYield);
}

TEST(IdlePolicy, FewScansInTheTimeOfManyMeanThatWakingUpIsSlowToo) {
  IdlePolicy policy;
  for (uint32_t i = 0; i < IdlePolicy::kScansBeforeYield; i++) policy.Next(false, At(0));
  for (int64_t at = 0; at < 500; at += 10) EXPECT_EQ(policy.Next(false, At(at)), Step::kYield);
  EXPECT_EQ(policy.Next(false, At(500)), Step::kSleep);
}

// Lets the host yield without work, once for each time that a yield takes, in microseconds.
Step Yield(IdlePolicy& policy, int64_t& at, std::initializer_list<int64_t> times) {
  Step step = Step::kScan;
  for (uint32_t i = 0; i <= IdlePolicy::kScansBeforeYield; i++) step = policy.Next(false, At(at));
  EXPECT_EQ(step, Step::kYield);
  for (const int64_t time : times) {
    at += time;
    policy.Next(true, At(at));
    for (uint32_t i = 0; i <= IdlePolicy::kScansBeforeYield; i++) step = policy.Next(false, At(at));
  }
  return step;
}

TEST(IdlePolicy, BesideAProcessThatNeverWaitsItSleepsAtOnce) {
  IdlePolicy policy;
  int64_t at = 1'000'000;
  EXPECT_EQ(Yield(policy, at, {4000, 4000}), Step::kYield);
  EXPECT_EQ(Yield(policy, at, {4000}), Step::kSleep);
}

TEST(IdlePolicy, AHostWithoutPeersSleepsEarlyAsWell) {
  IdlePolicy policy;
  int64_t at = 1'000'000;
  EXPECT_EQ(Yield(policy, at, {4000, 4000, 4000}), Step::kSleep);
  policy.HasNoPeers(true);
  EXPECT_EQ(policy.Next(true, At(at)), Step::kScan);
  for (uint32_t i = 0; i < IdlePolicy::kScansBeforeYield; i++) {
    EXPECT_EQ(policy.Next(false, At(at)), Step::kScan);
  }
  EXPECT_EQ(policy.Next(false, At(at)), Step::kSleep);
}

TEST(IdlePolicy, TheTimeOfWorkAndOfSleepIsNoYield) {
  IdlePolicy policy;
  int64_t at = 1'000'000;
  for (; at < 1'100'000; at += 900) EXPECT_EQ(policy.Next(true, At(at), true), Step::kYield);
  for (; at < 1'300'000; at += 4000) {
    policy.Woke();
    EXPECT_EQ(policy.Next(false, At(at)), Step::kScan);
  }
  policy.Woke();
  EXPECT_EQ(Yield(policy, at, {}), Step::kYield);
}

TEST(IdlePolicy, AWaitForCopiesIsNoYield) {
  IdlePolicy policy;
  for (int64_t at = 1'000'000; at < 1'100'000; at += 4000) {
    for (uint32_t i = 0; i <= IdlePolicy::kScansBeforeYield; i++) {
      EXPECT_NE(policy.Next(i == 0, At(at)), Step::kSleep);
      policy.DiscountWait();
    }
  }
}

TEST(IdlePolicy, AHostStaysAwakeWhereItMust) {
  IdlePolicy policy;
  policy.StayAwake(true);
  int64_t at = 1'000'000;
  for (int i = 0; i < 100; i++) EXPECT_EQ(Yield(policy, at, {4000, 4000}), Step::kYield);
  policy.StayAwake(false);
  EXPECT_EQ(Yield(policy, at, {4000, 4000, 4000}), Step::kSleep);
  policy.StayAwake(true);
  EXPECT_EQ(Yield(policy, at, {}), Step::kYield) << "at once";
}

TEST(IdlePolicy, WorkStartsItAnew) {
  IdlePolicy policy;
  for (uint32_t i = 0; i < 200; i++) policy.Next(false, At(0));
  EXPECT_EQ(policy.Next(true, At(60)), Step::kScan);
  EXPECT_EQ(policy.Next(false, At(60)), Step::kScan);
  for (uint32_t i = 0; i < 200; i++) EXPECT_NE(policy.Next(false, At(61)), Step::kSleep);
  EXPECT_EQ(policy.Next(false, At(111)), Step::kSleep);
}

TEST(IdlePolicy, YieldsToCallersThatAwaitItsProcessor) {
  IdlePolicy policy;
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(policy.Next(true, At(0), /*caller_is_next=*/true), Step::kYield);
  }
  EXPECT_EQ(policy.Next(true, At(0)), Step::kScan) << "other work";
  EXPECT_EQ(policy.Next(false, At(0)), Step::kScan) << "no call";
}

}  // namespace
}  // namespace rdmaemu::runtime
