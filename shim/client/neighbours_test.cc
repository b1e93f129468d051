#include "shim/client/neighbours.h"

#include <gtest/gtest.h>

namespace rdmaemu::client {
namespace {

constexpr uint64_t kShort = 1000, kLong = Neighbours::kSwitch * kShort + 1;

class NeighboursTest : public ::testing::Test {
 protected:
  void Yield(uint32_t times, uint64_t took_ns = kShort) {
    for (uint32_t i = 0; i < times; i++) neighbours_.Yielded(took_ns);
  }
  // Returns how many of the next waits begin with a spin.
  uint32_t SpinsIn(uint32_t waits) {
    uint32_t spins = 0;
    for (uint32_t i = 0; i < waits; i++) spins += neighbours_.MaySpin() ? 1 : 0;
    return spins;
  }

  Neighbours neighbours_;
};

TEST_F(NeighboursTest, AThreadSpinsAfterSomeYieldsWithoutAnotherThread) {
  Yield(Neighbours::kMinAlone - 1);
  EXPECT_FALSE(neighbours_.MaySpin());
  Yield(1);
  EXPECT_TRUE(neighbours_.MaySpin());
}

TEST_F(NeighboursTest, AYieldThatLastsLongerHasRunAnotherThread) {
  Yield(Neighbours::kMinAlone);
  Yield(1, kLong - 1);
  EXPECT_TRUE(neighbours_.MaySpin());
  Yield(1, kLong);
  EXPECT_FALSE(neighbours_.MaySpin());
}

TEST_F(NeighboursTest, AThreadYieldsAsSoonAsAnotherOneHasRun) {
  Yield(Neighbours::kMinAlone);
  Yield(1, kLong);
  EXPECT_FALSE(neighbours_.MaySpin());
  Yield(Neighbours::kMinAlone - 1);
  EXPECT_FALSE(neighbours_.MaySpin());
  Yield(1);
  EXPECT_TRUE(neighbours_.MaySpin());
}

TEST_F(NeighboursTest, SomeWaitsYieldToNoticeOthers) {
  Yield(Neighbours::kMinAlone);
  EXPECT_EQ(SpinsIn(4 * Neighbours::kWaitsPerProbe), 4 * (Neighbours::kWaitsPerProbe - 1));
}

TEST_F(NeighboursTest, AFirstLongYieldDoesNotSpoilTheComparison) {
  Yield(1, 100 * kShort);
  Yield(Neighbours::kMinAlone);
  Yield(1, kLong);
  EXPECT_FALSE(neighbours_.MaySpin());
}

}  // namespace
}  // namespace rdmaemu::client
