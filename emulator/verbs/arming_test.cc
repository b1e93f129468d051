// A program arms its completion queue while its host adds completions.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

class Arming : public ::testing::Test, public testing::VerbsFixture {};

// A program that polls without waiting for the event, and arms the queue again at once, still gets
// one event for each completion.
TEST_F(Arming, ACompletionAfterArmingRaisesAnEventOfItsOwn) {
  constexpr uint64_t kCompletions = 30'000;
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* cq = Cq(7, channel);
  std::atomic<uint64_t> armed = 0;
  std::thread program([ring = cq->ring, control = cq->control, &armed]() mutable {
    for (uint64_t i = 1; i <= kCompletions; i++) {
      const uint32_t consumer = ring.Consumer();
      std::atomic_ref(control->armed).store(ArmedWord(kCqArmedAny, consumer));
      armed.store(i);
      while (ring.Producer() == consumer) std::this_thread::yield();
      ring.SetConsumer(ring.Next(consumer));
    }
  });
  for (uint64_t i = 1; i <= kCompletions; i++) {
    while (armed.load() < i) std::this_thread::yield();
    EXPECT_TRUE(cq->Push({}, false));
  }
  program.join();
  EXPECT_EQ(counters.value(channel->counter), kCompletions);
}

// A program that arms the queue and then finds it empty gets the event of the next completion.
TEST_F(Arming, ArmingAnEmptyQueueWhileACompletionArrivesLosesNoEvent) {
  constexpr uint64_t kCompletions = 30'000;
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* cq = Cq(7, channel);
  std::atomic<uint64_t> polled = 0, missed = 0;
  std::thread program([ring = cq->ring, control = cq->control, &polled, &missed]() mutable {
    for (uint64_t i = 1; i <= kCompletions; i++) {
      uint32_t consumer = ring.Consumer();
      std::atomic_ref(control->armed).exchange(ArmedWord(kCqArmedAny, consumer));
      if (ring.Producer() != consumer) missed++;  // this completion may be older than the arming
      while (ring.Producer() == consumer) std::this_thread::yield();
      ring.SetConsumer(ring.Next(consumer));
      polled.store(i);
    }
  });
  for (uint64_t i = 1; i <= kCompletions; i++) {
    EXPECT_TRUE(cq->Push({}, false));
    while (polled.load() < i) std::this_thread::yield();
  }
  program.join();
  EXPECT_GE(counters.value(channel->counter), kCompletions - missed);
}

}  // namespace
}  // namespace rdmaemu
