// The queue of items that rules delay and hold.
#include "emulator/host/faults/deferred.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rdmaemu {
namespace {

Time At(int ms) { return Time(std::chrono::milliseconds(ms)); }

struct Thing {
  char line;
  int number;
};
template <class Queue>
std::string Due(Queue& queue, int ms) {
  std::string due;
  queue.Expire(At(ms), [&](Thing each) {
    due += each.line;
    due += std::to_string(each.number) + " ";
  });
  return due;
}

TEST(Deferred, ThingsAreDueInTheOrderOfTimeAndArrival) {
  uint64_t refused = 0;
  Deferred<Thing> queue(8, refused);
  EXPECT_EQ(queue.NextDeadline(), std::nullopt);
  queue.Delay(At(2), {'a', 1});
  queue.Delay(At(1), {'a', 2});
  queue.Delay(At(2), {'a', 3});
  EXPECT_EQ(queue.NextDeadline(), At(1));
  EXPECT_FALSE(queue.IsDue(At(0)));
  EXPECT_EQ(Due(queue, 1), "a2 ");
  EXPECT_EQ(Due(queue, 2), "a1 a3 ");
  EXPECT_EQ(queue.size(), 0u);
}

TEST(Deferred, WhatExpireAddsIsDueInTheSameLook) {
  uint64_t refused = 0;
  Deferred<Thing> queue(8, refused);
  queue.Delay(At(1), {'a', 3});
  std::string due;
  queue.Expire(At(1), [&](const Thing& each) {
    due += std::to_string(each.number);
    if (each.number > 0) queue.Delay(At(1), {'a', each.number - 1});
  });
  EXPECT_EQ(due, "3210");
}

TEST(Deferred, OneMoreThanItsLimitIsRefusedAndCounted) {
  uint64_t refused = 0;
  Deferred<Thing> queue(2, refused);
  EXPECT_TRUE(queue.Delay(At(1), {'a', 1}));
  EXPECT_TRUE(queue.Hold("gate", {'a', 2}));
  EXPECT_EQ(refused, 0u);
  EXPECT_FALSE(queue.Delay(At(1), {'a', 3}));
  EXPECT_FALSE(queue.Hold("gate", {'a', 4}));
  EXPECT_EQ(refused, 2u);
  Due(queue, 1);
  EXPECT_TRUE(queue.HasRoom());
}

TEST(Deferred, ARuleReleasesWhatItHoldsAndNothingElse) {
  uint64_t refused = 0;
  Deferred<Thing> queue(8, refused);
  queue.Hold("one", {'a', 1});
  queue.Hold("two", {'a', 2});
  queue.Hold("one", {'a', 3});
  fault::HeldCounts counts;
  queue.CountHeld(counts);
  EXPECT_EQ(counts, (fault::HeldCounts{{"one", 2}, {"two", 1}}));
  EXPECT_EQ(Due(queue, 100), "");
  queue.Release(At(5), "one");
  EXPECT_EQ(queue.NextDeadline(), At(5));
  EXPECT_EQ(Due(queue, 5), "a1 a3 ");
  EXPECT_TRUE(queue.holds());
  queue.Release(At(6), {});
  EXPECT_EQ(Due(queue, 6), "a2 ");
  EXPECT_FALSE(queue.holds());
}

TEST(Deferred, WhatIsForgottenIsNeverDue) {
  uint64_t refused = 0;
  Deferred<Thing> queue(8, refused);
  const auto is_of_b = [](const Thing& each) { return each.line == 'b'; };
  queue.Delay(At(1), {'a', 1});
  queue.Delay(At(1), {'b', 2});
  queue.Hold("gate", {'b', 3});
  queue.ForgetHeld(is_of_b);
  EXPECT_EQ(queue.size(), 2u);
  queue.Forget(is_of_b);
  queue.Release(At(1), {});
  EXPECT_EQ(Due(queue, 1), "a1 ");
}

TEST(Deferred, AHastenedThingIsDueAtOnceBehindWhatIsDue) {
  uint64_t refused = 0;
  Deferred<Thing> queue(8, refused);
  queue.Delay(At(9), {'b', 1});
  queue.Delay(At(1), {'a', 2});
  queue.Delay(At(9), {'a', 3});
  queue.Hasten(At(1), [](Thing& each) { return each.line == 'b'; });
  EXPECT_EQ(Due(queue, 1), "a2 b1 ");
}

using Lines = Deferred<Thing, char>;

TEST(DeferredLines, ThingsOfOneLineKeepTheirOrder) {
  uint64_t refused = 0;
  Lines queue(8, refused);
  queue.Delay(At(5), {'a', 1});
  queue.Delay(At(1), {'a', 2});
  queue.Delay(At(1), {'b', 3});
  EXPECT_TRUE(queue.Has('a') && queue.Has('b'));
  EXPECT_EQ(Due(queue, 4), "b3 ");
  EXPECT_FALSE(queue.Has('b'));
  EXPECT_EQ(Due(queue, 5), "a1 a2 ");
}

TEST(DeferredLines, AThingBehindAHeldOneWaitsForItAndCountsAsHeld) {
  uint64_t refused = 0;
  Lines queue(8, refused);
  queue.Delay(At(1), {'a', 1});
  queue.Hold("one", {'a', 2});
  queue.Delay(At(7), {'a', 3});
  queue.Hold("two", {'a', 4});
  queue.Delay(At(1), {'b', 5});
  fault::HeldCounts counts;
  queue.CountHeld(counts);
  EXPECT_EQ(counts, (fault::HeldCounts{{"one", 2}, {"two", 1}}));
  EXPECT_EQ(Due(queue, 3), "a1 b5 ");
  queue.Release(At(3), "two");
  EXPECT_EQ(Due(queue, 100), "") << "the first is held still";
  queue.Release(At(5), "one");
  EXPECT_EQ(Due(queue, 5), "a2 ");
  EXPECT_EQ(Due(queue, 6), "") << "its own delay";
  EXPECT_EQ(Due(queue, 7), "a3 a4 ");
  EXPECT_FALSE(queue.Has('a'));
}

TEST(DeferredLines, ALineIsTakenOutInItsOrder) {
  uint64_t refused = 0;
  Lines queue(3, refused);
  queue.Delay(At(5), {'a', 1});
  queue.Hold("gate", {'a', 2});
  queue.Hold("gate", {'b', 3});
  std::vector<int> taken;
  queue.TakeLine('a', [&](const Thing& each) { taken.push_back(each.number); });
  EXPECT_EQ(taken, (std::vector<int>{1, 2}));
  EXPECT_FALSE(queue.Has('a'));
  EXPECT_TRUE(queue.Has('b'));
  queue.Release(At(1), {});
  EXPECT_EQ(Due(queue, 1), "b3 ");
}

}  // namespace
}  // namespace rdmaemu
