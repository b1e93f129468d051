#include "emulator/runtime/early_sleep.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

constexpr Duration kMicrosecond = std::chrono::microseconds(1);

class EarlySleepTest : public ::testing::Test {
 protected:
  bool Yield(Duration took) {
    now_ += took;
    early_.Waited(took, now_);
    return early_.IsOn(now_);
  }
  // Returns how long the host sleeps early now.
  Duration Phase() {
    Duration phase{};
    for (; early_.IsOn(now_); now_ += kMicrosecond * 1000) phase += kMicrosecond * 1000;
    return phase;
  }
  // Gives slices away until the host sleeps early.
  void BeginPhase() {
    while (!Yield(kSlice)) {
    }
  }

  static constexpr Duration kSlice = std::chrono::milliseconds(2);
  EarlySleep early_;
  Time now_{std::chrono::hours(1)};
};

TEST_F(EarlySleepTest, SeveralSlicesInAWindowCount) {
  EXPECT_FALSE(Yield(EarlySleep::kShare / 2));
  EXPECT_FALSE(Yield(EarlySleep::kShare / 2)) << "two slices";
  EXPECT_TRUE(Yield(EarlySleep::kSlice));
}

TEST_F(EarlySleepTest, TheyMustTakeAShareOfTheWindow) {
  EXPECT_FALSE(Yield(EarlySleep::kSlice));
  EXPECT_FALSE(Yield(EarlySleep::kSlice));
  EXPECT_FALSE(Yield(EarlySleep::kShare - 2 * EarlySleep::kSlice - kMicrosecond));
  EXPECT_TRUE(Yield(EarlySleep::kSlice));
}

TEST_F(EarlySleepTest, ShortYieldsAndThoseOfOtherWindowsDoNotCount) {
  for (int i = 0; i < 10'000; i++) EXPECT_FALSE(Yield(EarlySleep::kSlice - kMicrosecond));
  for (int i = 0; i < 100; i++) {
    now_ += EarlySleep::kWindow;
    EXPECT_FALSE(Yield(EarlySleep::kShare));
    EXPECT_FALSE(Yield(EarlySleep::kShare));
  }
}

TEST_F(EarlySleepTest, PhasesBecomeLongerWhileTheProcessGoesOn) {
  Duration expected = EarlySleep::kFirstPhase;
  for (int i = 0; i < 10; i++) {
    BeginPhase();
    EXPECT_EQ(Phase(), expected);
    expected = std::min(2 * expected, EarlySleep::kLongestPhase);
  }
  now_ += EarlySleep::kSoon;
  BeginPhase();
  EXPECT_EQ(Phase(), EarlySleep::kFirstPhase);
}

}  // namespace
}  // namespace rdmaemu::runtime
