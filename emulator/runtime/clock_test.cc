#include "emulator/runtime/clock.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Mode = ClockOption::Mode;

constexpr Time kYear = Time(std::chrono::hours(24 * 365));

TEST(ClockOption, NamesItsModes) {
  EXPECT_EQ(ParseClockOption("")->mode, Mode::kReal);
  EXPECT_EQ(ParseClockOption("real")->mode, Mode::kReal);
  EXPECT_EQ(ParseClockOption("virtual")->mode, Mode::kVirtual);
  EXPECT_EQ(ParseClockOption("program")->mode, Mode::kProgram);
  EXPECT_EQ(ParseClockOption("manual")->mode, Mode::kManual);
}

TEST(ClockOption, AScaleIsADecimalNumberWithinBounds) {
  EXPECT_EQ(ParseClockOption("scaled:4")->parts_per_million, 4'000'000);
  EXPECT_EQ(ParseClockOption("scaled:0.25")->parts_per_million, 250'000);
  EXPECT_EQ(ParseClockOption("scaled:0.01")->parts_per_million, 10'000);
  EXPECT_EQ(ParseClockOption("scaled:100")->parts_per_million, 100'000'000);
  for (const char* wrong : {"scaled", "scaled:", "scaled:0", "scaled:0.009", "scaled:100.000001",
                            "scaled:-1", "scaled:4x", "scaled:1e2", "scaled:.5", "scaled:5.",
                            "scaled:1.2.3", "scaled:0.1234567", "scaled:99999999999999999999"}) {
    EXPECT_FALSE(ParseClockOption(wrong)) << wrong;
  }
}

TEST(ClockOption, AMistakeIsAnsweredWithWhatWouldBeRight) {
  EXPECT_EQ(ParseClockOption("fast").error(),
            "there is no clock \"fast\"; choose one of: real, scaled:K, virtual, manual, program");
  EXPECT_EQ(ParseClockOption("scaled:many").error(),
            "\"many\" is not a scale of time: give a number from 0.01 to 100, as in"
            " --clock scaled:4");
}

TEST(ScaledClock, RunsAsManyTimesAsFast) {
  const ScaledClock clock(4'000'000);
  EXPECT_EQ(clock.At(kYear + seconds(1)) - clock.At(kYear), seconds(4));
  EXPECT_LT(clock.At(kYear), clock.At(kYear + Duration(1)));
}

// The largest scale on a machine that has been up for two years.
TEST(ScaledClock, DoesNotOverflow) {
  const ScaledClock clock(ClockOption::kMaxPartsPerMillion);
  EXPECT_GT(clock.At(Time(2 * kYear.time_since_epoch())), clock.At(kYear));
}

TEST(ScaledClock, WhoSleepsUntilADeadlineDoesNotWakeBeforeIt) {
  for (const int64_t scale : {10'000, 250'000, 999'999, 3'000'000, 100'000'000}) {
    const ScaledClock clock(scale);
    const Time now = clock.At(kYear), deadline = now + milliseconds(7) + Duration(3);
    EXPECT_GE(clock.At(kYear + clock.RealTime(deadline - now)), deadline) << scale;
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
