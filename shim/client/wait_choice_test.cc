// Tests WaitChoice with the durations of waits on a quiet and on a busy machine.
#include "shim/client/wait_choice.h"

#include <gtest/gtest.h>

namespace rdmaemu::client {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kSecond = 1'000'000'000;

struct Machine {
  uint64_t yields, sleeps;  // how long a wait lasts
};
constexpr Machine kQuiet = {4 * kUs, 12 * kUs};
constexpr Machine kBusy = {3 * kMs, 20 * kUs};

class WaitChoiceTest : public ::testing::Test {
 protected:
  // Waits again and again for this time, and counts the waits.
  void WaitFor(const Machine& machine, uint64_t duration) {
    const uint64_t end = now_ + duration;
    waits_[0] = waits_[1] = 0;
    while (now_ < end) {
      const WaitChoice::Way way = choice_.Next(now_);
      const uint64_t took = way == WaitChoice::kYields ? machine.yields : machine.sleeps;
      now_ += took;
      choice_.Took(way, took, now_);
      waits_[way]++;
      now_ += 5 * kUs;
    }
  }
  uint64_t Yields() const { return waits_[WaitChoice::kYields]; }
  uint64_t Sleeps() const { return waits_[WaitChoice::kSleeps]; }

  WaitChoice choice_;
  uint64_t now_ = 1;
  uint64_t waits_[2] = {};
};

TEST_F(WaitChoiceTest, AProgramOnAQuietMachineYields) {
  WaitFor(kQuiet, kSecond);
  EXPECT_GT(Yields(), 100'000u);
  EXPECT_GT(Sleeps(), 0u) << "how long sleeps take was measured";
  EXPECT_LT(Sleeps(), 20u);
}

TEST_F(WaitChoiceTest, AProgramOnABusyMachineSleeps) {
  WaitFor(kBusy, kSecond);
  EXPECT_GT(Sleeps(), 30'000u);
  EXPECT_LT(Yields(), 20u);
}

TEST_F(WaitChoiceTest, TheChoiceFollowsTheMachine) {
  WaitFor(kQuiet, kSecond);
  WaitFor(kBusy, 100 * kMs);
  EXPECT_EQ(choice_.best(), WaitChoice::kSleeps);
  EXPECT_LT(Yields(), 10u) << "the durations of sleeps were known";
  WaitFor(kQuiet, 5 * kSecond);
  EXPECT_EQ(choice_.best(), WaitChoice::kYields);
}

TEST_F(WaitChoiceTest, ATrialThatIsLuckyOnceChangesLittle) {
  WaitFor(kBusy, kSecond);
  choice_.Took(WaitChoice::kYields, 1, now_);
  WaitFor(kBusy, kSecond);
  EXPECT_EQ(choice_.best(), WaitChoice::kSleeps);
  EXPECT_LT(Yields(), 30u);
}

TEST_F(WaitChoiceTest, AWaitForSomethingElseDoesNotCount) {
  WaitFor(kQuiet, kSecond);
  for (int i = 0; i < 100; i++) choice_.Took(WaitChoice::kYields, kSecond, now_);
  EXPECT_EQ(choice_.best(), WaitChoice::kYields);
}

TEST_F(WaitChoiceTest, AMeasurementGetsOld) {
  WaitFor(kBusy, kSecond);
  EXPECT_TRUE(choice_.IsRecent(now_));
  EXPECT_FALSE(choice_.IsRecent(now_ + kSecond));
}

TEST_F(WaitChoiceTest, OnlyOneOfManyThreadsTriesTheOtherWay) {
  WaitFor(kQuiet, kSecond);
  now_ += 10 * kSecond;
  EXPECT_EQ(choice_.Next(now_), WaitChoice::kSleeps);
  EXPECT_EQ(choice_.Next(now_), WaitChoice::kYields);
}

}  // namespace
}  // namespace rdmaemu::client
