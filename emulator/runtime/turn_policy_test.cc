#include "emulator/runtime/turn_policy.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

using enum TurnPolicy::Awaits;
constexpr std::nullopt_t kGoOn = std::nullopt;
constexpr Time At(int64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

TEST(TurnPolicy, ABusyHostEndsItsTurnAfterALimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kNothing, At(1000)), kGoOn);
  EXPECT_EQ(policy.Next(true, kNothing, At(1199)), kGoOn);
  EXPECT_EQ(policy.Next(true, kNothing, At(1200)), TurnEnd::kAll);
  EXPECT_EQ(policy.Next(true, kNothing, At(1201)), kGoOn) << "the next wait begins";
}

TEST(TurnPolicy, AnIdleHostEndsItsTurnForThreadsWithNews) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kNothing, At(10)), kGoOn);
  EXPECT_EQ(policy.Next(false, kNothing, At(11)), TurnEnd::kWithNews);
  EXPECT_EQ(policy.Next(false, kNothing, At(14)), TurnEnd::kWithNews);
  EXPECT_EQ(policy.Next(false, kNothing, At(15)), TurnEnd::kAll);
}

TEST(TurnPolicy, AThreadWithOffersRunsAtOnceAndOthersWaitUntilALimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kCopies, At(10)), kGoOn);
  EXPECT_EQ(policy.Next(false, kCopies, At(10)), TurnEnd::kWithOffers);
  EXPECT_EQ(policy.Next(true, kCopies, At(30)), kGoOn) << "a copy has ended";
  EXPECT_EQ(policy.Next(false, kCopies, At(49)), TurnEnd::kWithOffers);
  EXPECT_EQ(policy.Next(false, kCopies, At(50)), TurnEnd::kAll);
  EXPECT_EQ(policy.Next(false, kCopies, At(51)), TurnEnd::kWithOffers) << "the next wait begins";
}

TEST(TurnPolicy, AThreadWithNewsRunsWhenTheLastCopyHasEnded) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(false, kCopies, At(10)), TurnEnd::kWithOffers);
  EXPECT_EQ(policy.Next(true, kNothing, At(20)), kGoOn);
  EXPECT_EQ(policy.Next(false, kNothing, At(21)), TurnEnd::kWithNews);
}

TEST(TurnPolicy, ABusyHostWithCopiesEndsItsTurnAfterTheSameLimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kCopies, At(1000)), kGoOn);
  EXPECT_EQ(policy.Next(true, kCopies, At(1199)), kGoOn);
  EXPECT_EQ(policy.Next(true, kCopies, At(1200)), TurnEnd::kAll);
}

TEST(TurnPolicy, AHostThatAwaitsFormsEndsItsTurnAtOnce) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kForms, At(10)), kGoOn);
  EXPECT_EQ(policy.Next(false, kForms, At(10)), TurnEnd::kAll);
}

TEST(TurnPolicy, AThreadOnAnotherProcessorWaitsForNewsUntilTheLimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kNothing, At(10), /*is_here=*/false), kGoOn);
  EXPECT_EQ(policy.Next(false, kNothing, At(100), false), TurnEnd::kWithNews);
  EXPECT_EQ(policy.Next(true, kNothing, At(150), false), kGoOn);
  EXPECT_EQ(policy.Next(false, kNothing, At(209), false), TurnEnd::kWithNews);
  EXPECT_EQ(policy.Next(false, kNothing, At(210), false), TurnEnd::kAll);
  EXPECT_EQ(policy.Next(true, kNothing, At(300), false), kGoOn) << "the next wait begins";
  EXPECT_EQ(policy.Next(true, kNothing, At(500), false), TurnEnd::kAll);
  EXPECT_EQ(policy.Next(false, kCopies, At(501), false), TurnEnd::kWithOffers);
  EXPECT_EQ(policy.Next(false, kCopies, At(540), false), TurnEnd::kWithOffers);
  EXPECT_EQ(policy.Next(false, kCopies, At(541), false), TurnEnd::kAll);
}

TEST(TurnPolicy, WorkBeforeTheWaitCountsForTheIdleTime) {
  TurnPolicy policy;
  policy.NotAwaited(true, At(100));
  policy.NotAwaited(false, At(101));
  EXPECT_EQ(policy.Next(false, kNothing, At(104)), TurnEnd::kWithNews);
  EXPECT_EQ(policy.Next(false, kNothing, At(105)), TurnEnd::kAll);
}

TEST(TurnPolicy, AWaitThatBeganLaterHasTheWholeLimit) {
  TurnPolicy policy;
  EXPECT_EQ(policy.Next(true, kNothing, At(0)), kGoOn);
  policy.NotAwaited(true, At(150));
  EXPECT_EQ(policy.Next(true, kNothing, At(250)), kGoOn);
  EXPECT_EQ(policy.Next(true, kNothing, At(449)), kGoOn);
  EXPECT_EQ(policy.Next(true, kNothing, At(450)), TurnEnd::kAll);
}

}  // namespace
}  // namespace rdmaemu::runtime
