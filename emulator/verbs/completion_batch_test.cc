// Completions that the host shows to programs together.
#include "emulator/verbs/completion_batch.h"

#include <gtest/gtest.h>

#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

class Batch : public ::testing::Test, public testing::VerbsFixture {
 protected:
  static constexpr uint32_t kMost = CompletionBatch::kMostUnpublished;
  void Push(CompletionQueue& to, uint32_t count, bool solicited = false) {
    for (uint32_t i = 0; i < count; i++) ASSERT_TRUE(to.Push({}, solicited));
  }
  uint64_t Events(const CompletionChannel& channel) { return counters.value(channel.counter); }
  static void Arm(CompletionQueue& queue, uint32_t kind) {
    queue.control->armed = ArmedWord(kind, queue.ring.Consumer());
  }
  CompletionBatch& batch = verbs.completions();
};

TEST_F(Batch, WithoutAScopeACompletionIsVisibleAtOnce) {
  CompletionQueue* const one = Cq(64);
  Push(*one, 1);
  EXPECT_EQ(one->ring.Count(), 1u);
}

TEST_F(Batch, CompletionsBecomeVisibleAtTheEndOfTheOutermostScope) {
  CompletionQueue *const one = Cq(64), *const other = Cq(64);
  {
    const CompletionBatch::Scope outer(batch);
    {
      const CompletionBatch::Scope inner(batch);
      Push(*one, 2);
    }
    Push(*other, 1);
    EXPECT_TRUE(one->ring.Empty());
    EXPECT_TRUE(other->ring.Empty());
    EXPECT_FALSE(one->IsDrained());
  }
  EXPECT_EQ(one->ring.Count(), 2u);
  EXPECT_EQ(other->ring.Count(), 1u);
  Push(*one, 1);
  EXPECT_EQ(one->ring.Count(), 3u);
}

TEST_F(Batch, ALongBatchIsShownInParts) {
  CompletionQueue *const one = Cq(64), *const other = Cq(64);
  const CompletionBatch::Scope scope(batch);
  Push(*other, 1);
  Push(*one, kMost - 1);
  EXPECT_TRUE(one->ring.Empty());
  Push(*one, 1);
  EXPECT_EQ(one->ring.Count(), kMost);
  EXPECT_EQ(other->ring.Count(), 1u) << "it is older";
  Push(*one, 1);
  EXPECT_EQ(one->ring.Count(), kMost) << "a new part has begun";
}

TEST_F(Batch, ACompletionOfASendShowsTheReceivesBeforeIt) {
  CompletionQueue *const received = Cq(64), *const sent = Cq(64);
  const CompletionBatch::Scope scope(batch);
  Push(*sent, 1);
  batch.PublishReceives();
  EXPECT_TRUE(sent->ring.Empty()) << "no receive waits";
  batch.NoteReceive();
  Push(*received, 1);
  batch.PublishReceives();
  EXPECT_EQ(received->ring.Count(), 1u);
}

TEST_F(Batch, AnArmedQueueRaisesOneEventWhenItsCompletionsBecomeVisible) {
  CompletionChannel* const channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* const one = Cq(64, channel);
  Arm(*one, kCqArmedAny);
  {
    const CompletionBatch::Scope scope(batch);
    Push(*one, 3);
    EXPECT_EQ(Events(*channel), 0u);
  }
  EXPECT_EQ(Events(*channel), 1u);
  EXPECT_EQ(ArmedKind(one->control->armed), kCqUnarmed);
}

TEST_F(Batch, OneSolicitedCompletionOfABatchRaisesTheEvent) {
  CompletionChannel* const channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* const one = Cq(64, channel);
  for (const bool solicited : {false, true}) {
    Arm(*one, kCqArmedSolicited);
    const CompletionBatch::Scope scope(batch);
    Push(*one, 1);
    Push(*one, 1, solicited);
    Push(*one, 1);
    batch.Publish();
    EXPECT_EQ(Events(*channel), solicited ? 1u : 0u);
  }
}

TEST_F(Batch, AnAsynchronousEventShowsTheCompletionsBeforeIt) {
  CompletionQueue* const one = Cq(64);
  const CompletionBatch::Scope scope(batch);
  Push(*one, 1);
  verbs.RaiseCq(*one, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(one->ring.Count(), 1u);
}

TEST_F(Batch, AQueueIsFullWhenUnpublishedCompletionsFillIt) {
  CompletionQueue* const one = Cq(7);
  const CompletionBatch::Scope scope(batch);
  Push(*one, one->ring.usable());
  EXPECT_FALSE(one->Push({}, false));
  EXPECT_EQ(one->control->overrun, 1u);
  EXPECT_EQ(one->ring.Count(), one->ring.usable()) << "visible before the event";
  one->ring.SetConsumer(one->ring.Next(one->ring.Consumer()));
  EXPECT_TRUE(one->Push({}, false)) << "the host reads the program's index again";
}

TEST_F(Batch, AResizedQueueKeepsUnpublishedCompletions) {
  CompletionQueue* const one = Cq(7);
  const CompletionBatch::Scope scope(batch);
  Push(*one, 3);
  ASSERT_TRUE(verbs.ResizeCq(kGroup, one->handle, 31));
  EXPECT_EQ(one->ring.Count(), 3u);
  Push(*one, 1);
  batch.Publish();
  EXPECT_EQ(one->ring.Count(), 4u);
}

TEST_F(Batch, ADestroyedQueueLeavesTheBatch) {
  CompletionQueue* const one = Cq(7);
  const CompletionBatch::Scope scope(batch);
  Push(*one, 1);
  ASSERT_TRUE(verbs.DestroyCq(kGroup, one->handle));
  batch.Publish();
}

}  // namespace
}  // namespace rdmaemu
