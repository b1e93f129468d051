// Completion queues, channels, receive queues.
#include <gtest/gtest.h>

#include "emulator/base/nothing_queued.h"
#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

class Queues : public ::testing::Test, public testing::VerbsFixture {
 protected:
  static CqEntry Entry(uint64_t wr_id) {
    CqEntry entry{};
    entry.wc.wr_id = wr_id;
    return entry;
  }
};

TEST_F(Queues, CqDepthsRoundUpToAPowerOfTwoLessOne) {
  EXPECT_EQ(Cq(1)->ring.usable(), 1u);
  EXPECT_EQ(Cq(10)->ring.usable(), 15u);
  EXPECT_EQ(Cq(32767)->ring.usable(), 32767u);
  for (const uint32_t entries : {0u, 32768u, UINT32_MAX}) {
    EXPECT_EQ(verbs.CreateCq(kGroup, {context->handle, 0, entries, 0, 0}).error().code, EINVAL);
  }
  EXPECT_EQ(verbs.CreateCq(kGroup, {context->handle, 0, 1, 2, 0}).error().code, EINVAL);
}

TEST_F(Queues, EachCompletionThatAnOverrunLosesRaisesCqErr) {
  CompletionQueue* cq = Cq(3);
  for (uint64_t i = 0; i < 3; i++) EXPECT_TRUE(cq->Push(Entry(i), false));
  EXPECT_FALSE(cq->Push(Entry(3), false));
  EXPECT_FALSE(cq->Push(Entry(4), false));
  EXPECT_EQ(counters.value(context->async_counter), 2u);
  EXPECT_EQ(cq->control->overrun, 1u);
  const AsyncEvent event = *verbs.TakeAsyncEvent(now, kGroup, context->handle);
  EXPECT_EQ(event.type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.cookie, 0xc0u);
  EXPECT_EQ(*verbs.DestroyCq(kGroup, cq->handle), 1u) << "events that wait for their ack";
}

TEST_F(Queues, AnArmedQueueRaisesOneEventAndSolicitedWaitsForIt) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* cq = Cq(15, channel);
  cq->Push(Entry(0), true);
  EXPECT_EQ(counters.value(channel->counter), 0u);
  cq->control->armed = kCqArmedSolicited;
  cq->Push(Entry(1), false);
  EXPECT_EQ(counters.value(channel->counter), 0u);
  cq->Push(Entry(2), true);
  cq->Push(Entry(3), true);
  EXPECT_EQ(counters.value(channel->counter), 1u);
  cq->control->armed = kCqArmedAny;
  cq->Push(Entry(4), false);
  EXPECT_EQ(counters.value(channel->counter), 2u);
  EXPECT_EQ(channel->ring.Count(), 2u);
  EXPECT_EQ(channel->ring.SlotAs<ChannelEntry>(0)->cq_cookie, 0xc0u);
}

TEST_F(Queues, EventsBeyondTheChannelsRingKeepTheirOrder) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* a = Cq(4095, channel, 0xa);
  CompletionQueue* b = Cq(4095, channel, 0xb);
  for (uint32_t i = 0; i < channel->ring.usable(); i++) {
    a->control->armed = kCqArmedAny;
    ASSERT_TRUE(a->Push(Entry(i), false));
  }
  b->control->armed = kCqArmedAny;
  b->Push(Entry(0), false);
  EXPECT_EQ(channel->overflow.size(), 1u);
  EXPECT_EQ(counters.value(channel->counter), channel->ring.usable() + 1);
  channel->ring.SetConsumer(channel->ring.Producer());  // as a program that takes the whole ring
  EXPECT_EQ(*verbs.TakeChannelEvent(kGroup, channel->handle), 0xbu);
  EXPECT_EQ(verbs.TakeChannelEvent(kGroup, channel->handle).error().code, kNothingQueued);
}

TEST_F(Queues, DestroyingACqTakesBackItsEventsAndLeavesTheOthers) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* a = Cq(15, channel, 0xa);
  CompletionQueue* b = Cq(15, channel, 0xb);
  for (CompletionQueue* cq : {a, b, a}) {
    cq->control->armed = kCqArmedAny;
    cq->Push(Entry(0), false);
  }
  EXPECT_EQ(verbs.DestroyChannel(kGroup, channel->handle).error().code, EBUSY);
  ASSERT_TRUE(verbs.DestroyCq(kGroup, a->handle));
  EXPECT_EQ(counters.value(channel->counter), 1u);
  EXPECT_EQ(*verbs.TakeChannelEvent(kGroup, channel->handle), 0xbu);
  EXPECT_EQ(verbs.TakeChannelEvent(kGroup, channel->handle).error().code, kNothingQueued);
}

TEST_F(Queues, AReaderWhoHadTakenItsCountFindsAnEmptyEntry) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* a = Cq(15, channel, 0xa);
  a->control->armed = kCqArmedAny;
  a->Push(Entry(0), false);
  ASSERT_TRUE(counters.Take(channel->counter));
  ASSERT_TRUE(verbs.DestroyCq(kGroup, a->handle));
  EXPECT_EQ(channel->ring.SlotAs<ChannelEntry>(channel->ring.Consumer())->cq_cookie, 0u);
  EXPECT_EQ(channel->ring.Count(), 1u);
}

TEST_F(Queues, AnEventOfTheProgramIsRaisedOnceAndDroppedWithItsQueue) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* a = Cq(15, channel, 0xa);
  CompletionQueue* b = Cq(15, channel, 0xb);
  ASSERT_TRUE(channel->control->Reserve());
  EXPECT_FALSE(channel->control->Reserve()) << "the place is in use";
  channel->control->Put(0xa);
  ASSERT_TRUE(verbs.RaiseCompletionEvent(kGroup, a->handle, EventPart::kCount));
  ASSERT_TRUE(verbs.RaiseCompletionEvent(kGroup, b->handle, EventPart::kAll));
  EXPECT_EQ(counters.value(channel->counter), 2u);
  EXPECT_EQ(*verbs.TakeChannelEvent(kGroup, channel->handle), 0xbu);
  EXPECT_EQ(*verbs.TakeChannelEvent(kGroup, channel->handle), 0xau);
  EXPECT_EQ(verbs.TakeChannelEvent(kGroup, channel->handle).error().code, kNothingQueued);
  ASSERT_EQ(counters.Remove(channel->counter, 2), 2u);

  for (const uint64_t cookie : {0xa, 0xb}) {
    ASSERT_TRUE(channel->control->Reserve());
    channel->control->Put(cookie);
    counters.Add(channel->counter, 1);
    ASSERT_TRUE(verbs.DestroyCq(kGroup, (cookie == 0xa ? a : b)->handle));
    EXPECT_EQ(counters.value(channel->counter), 0u);
    EXPECT_FALSE(channel->control->HasEvent());
  }
  EXPECT_TRUE(channel->ring.Empty());
  CompletionQueue* const without = Cq(15);
  EXPECT_EQ(verbs.RaiseCompletionEvent(kGroup, without->handle, EventPart::kCount).error().code,
            EINVAL);
}

TEST_F(Queues, DestroyingAnotherCqKeepsTheEventOfTheProgram) {
  CompletionChannel* channel = *verbs.CreateChannel(kGroup, context->handle);
  CompletionQueue* a = Cq(15, channel, 0xa);
  (void)Cq(15, channel, 0xb);
  ASSERT_TRUE(channel->control->Reserve());
  channel->control->Put(0xb);
  counters.Add(channel->counter, 1);
  ASSERT_TRUE(verbs.DestroyCq(kGroup, a->handle));
  EXPECT_EQ(counters.value(channel->counter), 1u);
  EXPECT_EQ(*verbs.TakeChannelEvent(kGroup, channel->handle), 0xbu);
}

// A process may be interrupted within a poll of a queue that another one destroys.
TEST_F(Queues, TheNextQueueOfSeveralProcessesHasOtherMemory) {
  const auto next = [this] {
    CompletionQueue* const cq = Cq(3);
    CqControl* const at = cq->control;
    EXPECT_TRUE(verbs.DestroyCq(kGroup, cq->handle));
    return at;
  };
  verbs.ProcessJoined(kGroup, ProcessId{1});
  CqControl* const first = next();
  EXPECT_EQ(next(), first);
  verbs.ProcessJoined(kGroup, ProcessId{2});
  EXPECT_EQ(next(), first);
  EXPECT_NE(next(), first);
  verbs.ProcessEnded(kGroup, ProcessId{1});
  EXPECT_EQ(next(), first);
}

TEST_F(Queues, ResizingMovesWhatWaits) {
  CompletionQueue* cq = Cq(7);
  for (uint64_t i = 0; i < 7; i++) cq->Push(Entry(i), false);
  cq->ring.SetConsumer(2);
  ASSERT_TRUE(verbs.ResizeCq(kGroup, cq->handle, 100));
  EXPECT_EQ(cq->ring.usable(), 127u);
  ASSERT_EQ(cq->ring.Count(), 5u);
  EXPECT_EQ(cq->ring.SlotAs<CqEntry>(0)->wc.wr_id, 2u);
  EXPECT_TRUE(cq->Push(Entry(7), false));
  EXPECT_EQ(cq->ring.SlotAs<CqEntry>(5)->wc.wr_id, 7u);
  EXPECT_EQ(verbs.ResizeCq(kGroup, cq->handle, 3).error().code, EINVAL);
}

TEST_F(Queues, AReceiveIsCopiedOutAndItsLengthAddedUp) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  EXPECT_FALSE(verbs.HasReceive(*qp));
  EXPECT_FALSE(verbs.TakeReceive(*qp));
  PostReceive(qp->recv_ring, 77, {{0x1000, 100, 5}, {0x2000, 28, 6}});
  const auto wqe = verbs.TakeReceive(*qp);
  ASSERT_TRUE(wqe);
  EXPECT_EQ(wqe->wr_id, 77u);
  EXPECT_EQ(wqe->length, 128u);
  ASSERT_EQ(wqe->sges.size(), 2u);
  EXPECT_EQ(wqe->sges[1].lkey, 6u);
  EXPECT_FALSE(verbs.HasReceive(*qp));
}

TEST_F(Queues, AReceiveIsSeenBeforeItIsTaken) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  const uint32_t first = qp->recv_ring.Consumer(), second = qp->recv_ring.Next(first);
  EXPECT_FALSE(verbs.PeekReceive(*qp, first));
  for (const uint64_t wr_id : {77, 78}) PostReceive(qp->recv_ring, wr_id, {{0x1000, 100, 5}});
  EXPECT_EQ(verbs.PeekReceive(*qp, first)->wr_id, 77u);
  EXPECT_EQ(verbs.PeekReceive(*qp, second)->wr_id, 78u);
  EXPECT_FALSE(verbs.PeekReceive(*qp, qp->recv_ring.Next(second))) << "nothing is posted there";
  EXPECT_EQ(verbs.TakeReceive(*qp)->wr_id, 77u);
  EXPECT_FALSE(verbs.PeekReceive(*qp, first)) << "it was taken";
  EXPECT_EQ(verbs.PeekReceive(*qp, second)->wr_id, 78u);
}

TEST_F(Queues, AReceiveThatLiesAboutItsSizeHasABadKeyInstead) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  PostReceive(qp->recv_ring, 78, {}, 3);
  PostReceive(qp->recv_ring, 79, {{0, UINT32_MAX, 1}, {0, 1, 1}});
  for (const uint64_t wr_id : {78, 79}) {
    const auto wqe = verbs.TakeReceive(*qp);
    ASSERT_TRUE(wqe);
    EXPECT_EQ(wqe->wr_id, wr_id);
    EXPECT_EQ(wqe->length, 0u);
    EXPECT_FALSE(verbs.ResolveLocal(*qp->pd, wqe->sges[0], IBV_ACCESS_LOCAL_WRITE));
  }
}

TEST_F(Queues, FallingUnderTheSrqLimitRaisesOneEventAndDisarms) {
  auto* srq = *verbs.CreateSrq(kGroup, {pd->handle, 8, 1, 0, 0x5});
  QueuePair* qp = Qp(IBV_QPT_RC, srq);
  EXPECT_EQ(verbs.DestroySrq(kGroup, srq->handle).error().code, EBUSY);
  for (uint64_t i = 0; i < 4; i++) PostReceive(srq->ring, i, {});
  ASSERT_TRUE(verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_LIMIT, 0, 3));
  verbs.TakeReceive(*qp);
  EXPECT_EQ(counters.value(context->async_counter), 0u) << "three left are not under three";
  verbs.TakeReceive(*qp);
  verbs.TakeReceive(*qp);
  EXPECT_EQ(counters.value(context->async_counter), 1u);
  EXPECT_EQ(verbs.QuerySrq(kGroup, srq->handle)->srq_limit, 0u);
  EXPECT_EQ(verbs.TakeAsyncEvent(now, kGroup, context->handle)->type, IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_F(Queues, AnSrqResizesWithItsReceivesAndRefusesWhatDoesNotFit) {
  auto* srq = *verbs.CreateSrq(kGroup, {pd->handle, 3, 1, 0, 0});
  for (uint64_t i = 0; i < 3; i++) PostReceive(srq->ring, i, {{0x10, 4, 9}});
  ASSERT_TRUE(verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_MAX_WR, 20, 0));
  EXPECT_EQ(srq->ring.usable(), 31u);
  EXPECT_EQ(srq->ring.Count(), 3u);
  EXPECT_EQ(srq->ring.SlotAs<rxe_recv_wqe>(2)->wr_id, 2u);
  EXPECT_EQ(verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_MAX_WR, 2, 0).error().code, EINVAL);
  EXPECT_EQ(verbs.ModifySrq(kGroup, srq->handle, IBV_SRQ_LIMIT, 0, 32).error().code, EINVAL);
  EXPECT_EQ(verbs.CreateSrq(kGroup, {pd->handle, 0, 1, 0, 0}).error().code, EINVAL);
  EXPECT_EQ(verbs.CreateSrq(kGroup, {pd->handle, 8, 28, 0, 0}).error().code, EINVAL);
}

// An embedded host that crashes must not leave descriptors open.
TEST(QueuesOfAHost, GiveTheirCountersBackWhenItEnds) {
  testing::FakeCounters counters;
  {
    testing::FakeSharedMemory shared_memory;
    testing::FakeMemory memory;
    testing::FakeTrace trace;
    Random random(1);
    Verbs verbs({shared_memory, counters, memory, random, trace});
    verbs.AddDevice({"rxe0", *BuiltInProfile("rxe"), {{*NetAddress::Parse("10.0.0.1")}}});
    Context* context = *verbs.Open(GroupId{1}, 0);
    ASSERT_TRUE(verbs.CreateChannel(GroupId{1}, context->handle));
    EXPECT_EQ(counters.live(), 2u);
  }
  EXPECT_EQ(counters.live(), 0u);
}

}  // namespace
}  // namespace rdmaemu
