#include "shim/verbs/poll_waits.h"

#include <gtest/gtest.h>

namespace rdmaemu::shim {
namespace {

constexpr int64_t kPhase = PollWaits::kPhase;

// A thread that polls in vain, and its clocks.
struct Poller {
  PollWaits waits;
  int64_t now = 1'000'000'000;
  int64_t others = 0;
  int looks_at_others = 0;

  bool MayWait() const { return waits.MayWait(now); }
  void Wait(int64_t length) {
    const int64_t began = now;
    now += length;
    waits.Waited(began, now, [this] {
      looks_at_others++;
      return others;
    });
  }
  // Polls without waits until the thread may wait. Returns how long that takes.
  int64_t PollUntilItMayWait(int64_t step) {
    const int64_t began = now;
    while (!MayWait()) now += step;
    return now - began;
  }
};

TEST(PollWaits, AThreadAloneAlwaysWaits) {
  Poller poller;
  for (int i = 0; i < 1000; i++) {
    ASSERT_TRUE(poller.MayWait());
    poller.Wait(kPhase / 2);
  }
  EXPECT_EQ(500, poller.looks_at_others) << "once in a phase";
}

TEST(PollWaits, BesideOthersAThreadPollsForAsLongAsItHasWaited) {
  Poller poller;
  for (int phase = 0; phase < 10; phase++) {
    int64_t waited = 0;
    for (; waited < kPhase; waited += kPhase / 8) {
      ASSERT_TRUE(poller.MayWait());
      poller.Wait(kPhase / 8);
      poller.others += kPhase / 8;
    }
    EXPECT_EQ(waited, poller.PollUntilItMayWait(kPhase / 100)) << phase;
  }
}

TEST(PollWaits, TimeBetweenWaitsDoesNotEndThePhase) {
  Poller poller;
  poller.others = kPhase;
  for (int i = 0; i < 7; i++) {
    poller.Wait(kPhase / 8);
    poller.now += kPhase;
    ASSERT_TRUE(poller.MayWait());
  }
  poller.Wait(kPhase / 8);
  EXPECT_FALSE(poller.MayWait());
}

TEST(PollWaits, ALongWaitIsFollowedByALongPhaseUpToALimit) {
  Poller poller;
  poller.others = kPhase;
  poller.Wait(3 * kPhase);
  EXPECT_EQ(3 * kPhase, poller.PollUntilItMayWait(kPhase / 100));
  poller.others += kPhase;
  poller.Wait(1000 * PollWaits::kLongestPhase);
  EXPECT_EQ(PollWaits::kLongestPhase, poller.PollUntilItMayWait(kPhase / 100));
}

TEST(PollWaits, OnlyTimeThatOthersUsedSinceTheLastPhaseCounts) {
  Poller poller;
  poller.others = kPhase;
  poller.Wait(kPhase);
  EXPECT_EQ(kPhase, poller.PollUntilItMayWait(kPhase / 100));
  poller.Wait(kPhase);
  EXPECT_TRUE(poller.MayWait()) << "they used none";
  poller.others += PollWaits::kNoTime;
  poller.Wait(kPhase);
  EXPECT_TRUE(poller.MayWait()) << "not more than the clocks may differ";
  poller.others += 1;
  poller.Wait(kPhase);
  EXPECT_FALSE(poller.MayWait()) << "small times add up";
}

TEST(PollWaits, AForkedChildStartsWithLessTimeThanItsParent) {
  Poller poller;
  poller.others = 100 * kPhase;
  poller.Wait(kPhase);
  EXPECT_EQ(kPhase, poller.PollUntilItMayWait(kPhase / 100));
  poller.others = 0;
  poller.Wait(kPhase);
  EXPECT_EQ(kPhase, poller.PollUntilItMayWait(kPhase / 100));
  poller.others = kPhase;
  poller.Wait(kPhase);
  EXPECT_FALSE(poller.MayWait()) << "the child's threads count";
}

}  // namespace
}  // namespace rdmaemu::shim
