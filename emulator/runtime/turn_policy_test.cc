#include "emulator/runtime/turn_policy.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

using Step = TurnPolicy::Step;
constexpr Time At(int64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

TEST(TurnPolicy, ABusyHostEndsItsTurnAfterALimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, false, At(1000)), Step::kGoOn);
  EXPECT_EQ(policy.Next(true, false, At(1199)), Step::kGoOn);
  EXPECT_EQ(policy.Next(true, false, At(1200)), Step::kEndAll);
  EXPECT_EQ(policy.Next(true, false, At(1201)), Step::kGoOn) << "the next wait begins";
}

TEST(TurnPolicy, AnIdleHostEndsItsTurnForThreadsWithNews) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, false, At(10)), Step::kGoOn);
  EXPECT_EQ(policy.Next(false, false, At(11)), Step::kEndWithNews);
  EXPECT_EQ(policy.Next(false, false, At(14)), Step::kEndWithNews);
  EXPECT_EQ(policy.Next(false, false, At(15)), Step::kEndAll);
}

TEST(TurnPolicy, AThreadThatMakesCopiesRunsAtOnce) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, true, At(10)), Step::kGoOn);
  EXPECT_EQ(policy.Next(false, true, At(10)), Step::kEndAll);
}

TEST(TurnPolicy, AThreadOnAnotherProcessorWaitsForNewsUntilTheLimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, false, At(10), /*is_here=*/false), Step::kGoOn);
  EXPECT_EQ(policy.Next(false, false, At(100), false), Step::kEndWithNews);
  EXPECT_EQ(policy.Next(true, false, At(150), false), Step::kGoOn);
  EXPECT_EQ(policy.Next(false, false, At(209), false), Step::kEndWithNews);
  EXPECT_EQ(policy.Next(false, false, At(210), false), Step::kEndAll);
  EXPECT_EQ(policy.Next(true, false, At(300), false), Step::kGoOn) << "the next wait begins";
  EXPECT_EQ(policy.Next(true, false, At(500), false), Step::kEndAll);
  EXPECT_EQ(policy.Next(false, true, At(501), false), Step::kEndAll) << "the thread makes a copy";
}

TEST(TurnPolicy, WorkBeforeTheWaitCountsForTheIdleTime) {
  TurnPolicy policy;
  policy.NotAwaited(true, At(100));
  policy.NotAwaited(false, At(101));
  EXPECT_EQ(policy.Next(false, false, At(104)), Step::kEndWithNews);
  EXPECT_EQ(policy.Next(false, false, At(105)), Step::kEndAll);
}

TEST(TurnPolicy, AWaitThatBeganLaterHasTheWholeLimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, false, At(0)), Step::kGoOn);
  policy.NotAwaited(true, At(150));
  EXPECT_EQ(policy.Next(true, false, At(250)), Step::kGoOn);
  EXPECT_EQ(policy.Next(true, false, At(449)), Step::kGoOn);
  EXPECT_EQ(policy.Next(true, false, At(450)), Step::kEndAll);
}

}  // namespace
}  // namespace rdmaemu::runtime
