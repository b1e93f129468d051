#include "emulator/runtime/own_processor.h"

#include <gtest/gtest.h>

#include "emulator/runtime/affinity_for_test.h"

namespace rdmaemu::runtime {
namespace {

using testing::Affinity;

bool IsOnly(const cpu_set_t& set, uint32_t processor) {
  return CPU_COUNT(&set) == 1 && CPU_ISSET(processor - 1, &set);
}

class OwnProcessorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = Affinity();
    for (uint32_t i = 1; i <= CPU_SETSIZE && last_ == 0; i++) {
      if (!CPU_ISSET(i - 1, &before_)) continue;
      (first_ == 0 ? first_ : last_) = i;
    }
    if (last_ == 0) GTEST_SKIP() << "this machine gives the test one processor";
  }
  void TearDown() override { sched_setaffinity(0, sizeof before_, &before_); }

  // Acts as taskset(1).
  void RestrictTo(uint32_t processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor - 1, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(own_.allowed(), 1u);
  }

  OwnProcessor own_;
  cpu_set_t before_;
  uint32_t first_ = 0, last_ = 0;  // two processors on which the test may run
};

TEST_F(OwnProcessorTest, AThreadStaysUntilItMayLeave) {
  own_.Stay(last_);
  EXPECT_TRUE(IsOnly(Affinity(), last_));
  EXPECT_EQ(sched_getcpu() + 1, static_cast<int>(last_));
  own_.Stay(first_);
  EXPECT_TRUE(IsOnly(Affinity(), first_));
  EXPECT_EQ(sched_getcpu() + 1, static_cast<int>(first_));
  EXPECT_EQ(own_.allowed(), static_cast<uint32_t>(CPU_COUNT(&before_))) << "without Stay";
  own_.Stay(0);
  const cpu_set_t after = Affinity();
  EXPECT_TRUE(CPU_EQUAL(&after, &before_));
}

TEST_F(OwnProcessorTest, TheOtherProcessorIsKnownIfThereAreTwo) {
  cpu_set_t two;
  CPU_ZERO(&two);
  CPU_SET(first_ - 1, &two);
  CPU_SET(last_ - 1, &two);
  ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  EXPECT_EQ(own_.Other(first_), last_);
  own_.Stay(first_);
  EXPECT_EQ(own_.Other(last_), first_) << "without Stay";
  EXPECT_EQ(own_.Other(CPU_SETSIZE + 1), 0u);
  own_.Stay(0);
  RestrictTo(first_);
  EXPECT_EQ(own_.Other(first_), 0u);
}

TEST_F(OwnProcessorTest, AThreadDoesNotGoWhereItMayNotRun) {
  RestrictTo(first_);
  own_.Stay(last_);
  EXPECT_TRUE(IsOnly(Affinity(), first_));
  own_.Stay(CPU_SETSIZE + 1);
  own_.Stay(UINT32_MAX);
  EXPECT_TRUE(IsOnly(Affinity(), first_));
}

// taskset(1) acts on a host that stays on a processor.
TEST_F(OwnProcessorTest, AnAffinityThatAnotherProcessHasSetRemains) {
  own_.Stay(first_);
  RestrictTo(last_);
  own_.Stay(first_);
  EXPECT_TRUE(IsOnly(Affinity(), last_));
  own_.Stay(0);
  EXPECT_TRUE(IsOnly(Affinity(), last_));
}

}  // namespace
}  // namespace rdmaemu::runtime
