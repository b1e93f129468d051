#include "emulator/base/timer_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "emulator/base/random.h"

namespace rdmaemu {
namespace {

constexpr Time At(int64_t nanoseconds) { return Time(Duration(nanoseconds)); }

class TimerQueueTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> PopAll(int64_t now) {
    std::vector<uint32_t> popped;
    while (const std::optional<uint32_t> key = queue_.PopExpired(At(now))) popped.push_back(*key);
    return popped;
  }
  TimerQueue<uint32_t> queue_;
};

TEST_F(TimerQueueTest, EqualDeadlinesFireInTheOrderOfTheirKeys) {
  for (const uint32_t key : {5u, 1u, 4u, 2u, 3u}) queue_.Arm(key, At(key == 4 ? 9 : 10));
  EXPECT_EQ(PopAll(10), (std::vector{4u, 1u, 2u, 3u, 5u}));
}

TEST_F(TimerQueueTest, ADeadlineFiresAtItsTimeAndNotBefore) {
  queue_.Arm(1, At(10));
  EXPECT_EQ(PopAll(9), std::vector<uint32_t>{});
  EXPECT_EQ(queue_.Next(), At(10));
  EXPECT_EQ(PopAll(10), std::vector{1u});
  EXPECT_EQ(queue_.Next(), std::nullopt);
  EXPECT_EQ(queue_.First(), std::nullopt);
}

TEST_F(TimerQueueTest, AKeyHasOneDeadline) {
  queue_.Arm(1, At(10));
  queue_.Arm(2, At(20));
  queue_.Arm(1, At(30));
  EXPECT_EQ(queue_.First(), std::pair(At(20), 2u));
  queue_.Arm(1, At(5));
  EXPECT_EQ(PopAll(30), (std::vector{1u, 2u}));
}

TEST_F(TimerQueueTest, AnyKeyCanBeCancelled) {
  for (uint32_t key = 0; key < 7; key++) queue_.Arm(key, At(key));
  for (const uint32_t key : {0u, 6u, 3u, 9u}) queue_.Cancel(key);
  EXPECT_EQ(PopAll(7), (std::vector{1u, 2u, 4u, 5u}));
}

TEST_F(TimerQueueTest, ManyChangesFireInOrder) {
  Random random(1);
  std::map<uint32_t, Time> expected;
  for (int64_t now = 0; now < 20000; now++) {
    const auto key = static_cast<uint32_t>(random.Below(300));
    if (random.Below(3) == 0) {
      queue_.Cancel(key);
      expected.erase(key);
    } else {
      expected[key] = At(now + static_cast<int64_t>(random.Below(500)));
      queue_.Arm(key, expected[key]);
    }
    while (const std::optional<uint32_t> fired = queue_.PopExpired(At(now))) {
      const auto first = std::ranges::min_element(
          expected, {}, [](const auto& each) { return std::pair(each.second, each.first); });
      ASSERT_EQ(*fired, first->first);
      ASSERT_LE(first->second, At(now));
      expected.erase(first);
    }
    for (const auto& [left, deadline] : expected) ASSERT_GT(deadline, At(now)) << left;
  }
}

}  // namespace
}  // namespace rdmaemu
