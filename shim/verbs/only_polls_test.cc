#include "shim/verbs/only_polls.h"

#include <gtest/gtest.h>

namespace rdmaemu::shim {
namespace {

constexpr int64_t kMost = OnlyPolls::kMostNanoseconds;

TEST(OnlyPolls, TheFirstYieldMayFollowOtherWork) {
  const OnlyPolls polls;
  EXPECT_FALSE(polls.Check(0));
  EXPECT_FALSE(polls.Check(1'000'000'000));
}

TEST(OnlyPolls, AThreadThatYieldsAgainSoonOnlyPolls) {
  OnlyPolls polls;
  polls.Yielded(1'000'000);
  EXPECT_TRUE(polls.Check(1'000'000));
  EXPECT_TRUE(polls.Check(1'000'000 + kMost));
  EXPECT_FALSE(polls.Check(1'000'000 + kMost + 1)) << "other work";
  polls.Yielded(2'000'000);
  EXPECT_TRUE(polls.Check(2'000'000 + kMost));
}

}  // namespace
}  // namespace rdmaemu::shim
