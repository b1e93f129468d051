// Shared receive queues: limits, the limit event, several QPs that use one queue.
#include <poll.h>

#include <cerrno>
#include <climits>

#include "tests/contract/support/command.h"
#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

class SrqTest : public LoopbackTest {
 protected:
  Srq Make(uint32_t depth, uint32_t pieces, uint32_t limit = 0) {
    ibv_srq_init_attr init{};
    init.attr = {depth, pieces, limit};
    return Srq(ibv_create_srq(pd.get(), &init));
  }
  bool LimitEventComes(int limit_ms) {
    pollfd waiting{context->async_fd, POLLIN, 0};
    if (poll(&waiting, 1, limit_ms) != 1) return false;
    ibv_async_event event{};
    if (ibv_get_async_event(context.get(), &event) != 0) return false;
    ibv_ack_async_event(&event);
    return event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
  }
};

TEST_F(SrqTest, AcceptsSizesUpToTheDevicesLimits) {
  EXPECT_TRUE(Make(1, 1));
  EXPECT_TRUE(Make(8, 27));
  EXPECT_FALSE(Make(0, 0));
  EXPECT_FALSE(Make(8, 28));
  EXPECT_FALSE(Make(1048577, 1));
}

TEST_F(SrqTest, QueryTellsWhatItHas) {
  const Srq srq = Make(8, 1);
  ASSERT_TRUE(srq);
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  EXPECT_GE(attr.max_wr, 8u);
  EXPECT_GE(attr.max_sge, 1u);
  EXPECT_EQ(attr.srq_limit, 0u);
}

TEST_F(SrqTest, IsBusyWhileAQpUsesIt) {
  const Srq srq = Make(8, 1);
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  EXPECT_EQ(ibv_destroy_srq(srq.get()), EBUSY);
  b.reset();
}

TEST_F(SrqTest, AQpWithAnSrqTakesNoReceivesOfItsOwn) {
  const Srq srq = Make(8, 1);
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  EXPECT_EQ(PostReceive(b.get(), 1), EINVAL);
  b.reset();
}

TEST_F(SrqTest, TwoQpsTakeReceivesInTheOrderTheyWerePosted) {
  const Srq srq = Make(16, 1);
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  Qp c = LoopbackTest::Make(IBV_QPT_RC, {32, 32, 4, 4, 0}, nullptr, send_cq.get());
  Qp d = LoopbackTest::Make(IBV_QPT_RC, {32, 0, 4, 4, 0}, srq.get(), receive_cq.get());
  ASSERT_TRUE(c && d);
  ASSERT_EQ(Join(c.get(), d.get()), 0);
  ASSERT_EQ(Join(d.get(), c.get()), 0);
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(PostSrqReceive(srq.get(), i), 0);
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(PostSend(i % 2 ? c.get() : a.get(), i, IBV_SEND_SIGNALED), 0);
    ASSERT_TRUE(PollOne(send_cq.get()).found);
    const Completion received = PollOne(receive_cq.get());
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.wr_id, i);
    EXPECT_EQ(received.wc.qp_num, i % 2 ? d->qp_num : b->qp_num);
  }
  b.reset();
  d.reset();
}

TEST_F(SrqTest, FallingUnderTheLimitGivesOneEventAndDisarms) {
  const Srq srq = Make(16, 1);
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(PostSrqReceive(srq.get(), i), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 4;
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(PostSend(a.get(), i, IBV_SEND_SIGNALED), 0);
    ASSERT_TRUE(PollOne(send_cq.get()).found);
  }
  EXPECT_FALSE(LimitEventComes(kQuiet_ms)) << "four are left: not under the limit";
  ASSERT_EQ(PostSend(a.get(), 9, IBV_SEND_SIGNALED), 0);
  EXPECT_TRUE(LimitEventComes(kPatience_ms));
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
  ASSERT_EQ(PostSend(a.get(), 10, IBV_SEND_SIGNALED), 0);
  EXPECT_FALSE(LimitEventComes(kQuiet_ms));
  b.reset();
}

TEST_F(SrqTest, AFullQueueSaysEnomem) {
  const Srq srq = Make(4, 1);
  ibv_srq_attr attr{};
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  int posted = 0, result = 0;
  while (posted < 1000 && (result = PostSrqReceive(srq.get(), 1)) == 0) ++posted;
  EXPECT_EQ(result, ENOMEM);
  EXPECT_GE(posted, 4);
  b.reset();
}

// rdma-core's rxe provider only returns the error (measured for a queue pair's receives).
TEST_F(SrqTest, ARefusedReceiveSetsErrno) {
  if (!OnTheEmulator()) GTEST_SKIP() << "rdma_rxe leaves errno alone";
  const Srq srq = Make(4, 1);
  ibv_sge pieces[2] = {};
  ibv_recv_wr too_long{1, nullptr, pieces, 2};  // the queue takes one piece
  ibv_recv_wr empty{2, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_srq_recv(srq.get(), &too_long, &bad), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  int posted = 0;
  errno = 0;
  while (posted < 1000 && ibv_post_srq_recv(srq.get(), &empty, &bad) == 0) ++posted;
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(SrqTest, AReceiveOfTooManyPiecesIsRefusedBeforeItsListIsRead) {
  const Srq srq = Make(4, 1);
  ibv_recv_wr* bad = nullptr;
  for (const int pieces : {INT_MAX, 1 << 20, 1000, -1}) {
    ibv_recv_wr wr{1, nullptr, nullptr, pieces};
    EXPECT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), EINVAL) << pieces;
    EXPECT_EQ(bad, &wr);
  }
  ibv_recv_wr empty{2, nullptr, nullptr, 0};
  EXPECT_EQ(ibv_post_srq_recv(srq.get(), &empty, &bad), 0) << "the next request is posted";
}

TEST_F(SrqTest, AQpThatFailsLeavesTheOtherOnesReceivesAlone) {
  const Srq srq = Make(16, 1);
  ASSERT_NO_FATAL_FAILURE(Connect({}, nullptr, 64, srq.get()));
  ASSERT_EQ(PostSrqReceive(srq.get(), 5), 0);
  ASSERT_EQ(ToError(b.get()), 0);
  EXPECT_FALSE(PollOne(receive_cq.get(), kQuiet_ms).found);
  b.reset();
}

}  // namespace
}  // namespace rdma_contract
