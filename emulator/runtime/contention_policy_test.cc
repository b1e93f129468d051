#include "emulator/runtime/contention_policy.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

class ContentionPolicyTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kProcessors = 2;
  static constexpr uint64_t kLongWork = ContentionPolicy::kLongWork;

  static constexpr Time At(int64_t microseconds) {
    return Time(std::chrono::microseconds(microseconds));
  }
  // `sent` and `received` are the bytes since the last sample.
  bool Sample(int64_t microseconds, uint64_t sent, uint32_t runnable, uint64_t received = 0,
              uint64_t direct_sends = 0) {
    work.sockets.sent += sent;
    work.sockets.received += received;
    work.direct_sends += direct_sends;
    if (has_program_here) waits_here++;
    return policy.Sample(
        At(microseconds), work, kProcessors, [&] { return waits_here; },
        [&] {
          counted++;
          return runnable;
        });
  }
  ContentionPolicy policy;
  HostWork work{};
  bool has_program_here = true;
  uint32_t waits_here = 0;
  int counted = 0;

  void SetUp() override { Sample(1'000'000, 0, 0); }
};

TEST_F(ContentionPolicyTest, ASampleIsDueAfterTheInterval) {
  EXPECT_FALSE(policy.IsSampleDue(At(1'000'999)));
  EXPECT_TRUE(policy.IsSampleDue(At(1'001'000)));
}

TEST_F(ContentionPolicyTest, ThreadsWaitWhenMoreAreRunnableThanThereAreProcessors) {
  EXPECT_FALSE(Sample(1'001'000, kLongWork, kProcessors));
  EXPECT_TRUE(Sample(1'002'000, kLongWork, kProcessors + 1));
}

TEST_F(ContentionPolicyTest, ThreadsWaitOnlyForLongWork) {
  EXPECT_FALSE(Sample(1'001'000, kLongWork - 1, kProcessors + 1));
  EXPECT_EQ(counted, 0) << "without long work nothing is counted";
  EXPECT_TRUE(Sample(1'002'000, kLongWork, kProcessors + 1));
  EXPECT_FALSE(Sample(1'003'000, 0, kProcessors + 1));
  EXPECT_EQ(counted, 1);
}

TEST_F(ContentionPolicyTest, LongWorkHasOneDirection) {
  constexpr uint64_t kAnswers = kLongWork / ContentionPolicy::kOneDirection;
  EXPECT_TRUE(Sample(1'001'000, kLongWork, kProcessors + 1, kAnswers));
  EXPECT_FALSE(Sample(1'002'000, kLongWork, kProcessors + 1, kAnswers + 1));
  EXPECT_TRUE(Sample(1'003'000, kAnswers, kProcessors + 1, kLongWork));
  EXPECT_FALSE(Sample(1'004'000, kAnswers + 1, kProcessors + 1, kLongWork));
  EXPECT_FALSE(Sample(1'005'000, kLongWork, kProcessors + 1, kLongWork));
}

TEST_F(ContentionPolicyTest, ManySendsAreLongWork) {
  constexpr uint64_t kManySends = ContentionPolicy::kManySends;
  EXPECT_FALSE(Sample(1'001'000, 0, kProcessors + 1, 0, kManySends - 1));
  EXPECT_EQ(counted, 0) << "without long work nothing is counted";
  EXPECT_FALSE(Sample(1'002'000, 0, kProcessors, 0, kManySends));
  EXPECT_TRUE(Sample(1'003'000, 0, kProcessors + 1, 0, kManySends));
  EXPECT_FALSE(Sample(1'005'000, 0, kProcessors + 1, 0, 2 * kManySends - 1));
}

TEST_F(ContentionPolicyTest, ManySendsOfProgramsElsewhereAreNoLongWork) {
  constexpr uint64_t kManySends = ContentionPolicy::kManySends;
  EXPECT_TRUE(Sample(1'001'000, 0, kProcessors + 1, 0, kManySends));
  has_program_here = false;
  EXPECT_FALSE(Sample(1'002'000, 0, kProcessors + 1, 0, kManySends)) << "it has moved away";
  EXPECT_TRUE(Sample(1'003'000, kLongWork, kProcessors + 1, 0, kManySends)) << "a stream is";
  has_program_here = true;
  EXPECT_TRUE(Sample(1'004'000, 0, kProcessors + 1, 0, kManySends)) << "it is back";
}

TEST_F(ContentionPolicyTest, BytesOfAClosedPortDoNotCount) {
  EXPECT_TRUE(Sample(1'001'000, kLongWork, kProcessors + 1));
  work.sockets = {};
  EXPECT_FALSE(Sample(1'002'000, 0, kProcessors + 1));
  EXPECT_TRUE(Sample(1'003'000, kLongWork, kProcessors + 1));
}

TEST_F(ContentionPolicyTest, ALongerIntervalNeedsMoreBytes) {
  EXPECT_FALSE(Sample(1'003'000, 3 * kLongWork - 1, kProcessors + 1));
  EXPECT_TRUE(Sample(1'006'500, 3 * kLongWork, kProcessors + 1));
}

TEST_F(ContentionPolicyTest, ProcessorsStayScarceForAWhile) {
  EXPECT_TRUE(Sample(1'001'000, kLongWork, kProcessors + 1));
  EXPECT_TRUE(Sample(1'002'000, kLongWork, kProcessors));
  EXPECT_TRUE(Sample(1'011'000, 9 * kLongWork, kProcessors));
  EXPECT_FALSE(Sample(1'012'000, kLongWork, kProcessors));
}

}  // namespace
}  // namespace rdmaemu::runtime
