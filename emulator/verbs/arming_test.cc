// A program arms its completion queue while its host adds completions.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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
      ArmCq(*control, kCqArmedAny, consumer);
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

// A program that arms the queue, finds it empty and waits for an event gets its completion. The
// event may be that of the completion before, as on rdma_rxe (rxe_cq_post): the program then arms
// the queue again.
TEST_F(Arming, ArmingAnEmptyQueueWhileACompletionArrivesLosesNoEvent) {
  constexpr uint64_t kCompletions = 30'000;
  constexpr auto kLongest = std::chrono::minutes(1);
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* cq = Cq(7, channel);
  std::atomic<uint64_t> polled = 0;
  std::atomic<bool> gives_up = false;
  std::thread program([ring = cq->ring, events = channel->ring, control = cq->control, &polled,
                       &gives_up]() mutable {
    for (uint64_t i = 1; i <= kCompletions && !gives_up; i++) {
      const uint32_t consumer = ring.Consumer();
      while (ring.Producer() == consumer && !gives_up) {
        ArmCq(*control, kCqArmedAny, consumer);
        if (ring.Producer() != consumer) break;
        while (events.Producer() == events.Consumer() && !gives_up) std::this_thread::yield();
        events.SetConsumer(events.Producer());
      }
      events.SetConsumer(events.Producer());
      ring.SetConsumer(ring.Next(consumer));
      polled.store(i);
    }
  });
  for (uint64_t i = 1; i <= kCompletions && !gives_up; i++) {
    EXPECT_TRUE(cq->Push({}, false));
    const auto pushed_at = std::chrono::steady_clock::now();
    while (polled.load() < i && !gives_up) {
      std::this_thread::yield();
      gives_up = std::chrono::steady_clock::now() - pushed_at > kLongest;
    }
  }
  program.join();
  EXPECT_FALSE(gives_up) << "completion " << polled + 1 << " had no event";
}

}  // namespace
}  // namespace rdmaemu
