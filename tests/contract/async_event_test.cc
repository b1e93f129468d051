// The asynchronous event descriptor: blocking, non-blocking, and acknowledgement.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

class AsyncEvent : public LoopbackTest {
 protected:
  // Causes an event of `a`.
  void Drain(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  }
};

TEST_F(AsyncEvent, NothingToTellIsEagainOnANonBlockingDescriptor) {
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(context.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AsyncEvent, IsReadableWhenThereIsOneAndNotAfterwards) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  pollfd waiting{context->async_fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  Drain(a.get());
  ASSERT_EQ(poll(&waiting, 1, kPatience_ms), 1);
  ibv_async_event event{};
  while (poll(&waiting, 1, 0) == 1) {  // the kernel's rxe reports it more than once
    ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event.element.qp, a.get());
    ibv_ack_async_event(&event);
  }
}

TEST_F(AsyncEvent, WakesAThreadThatWaits) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  ibv_async_event event{};
  std::thread waiter([&] { EXPECT_EQ(ibv_get_async_event(context.get(), &event), 0); });
  Drain(a.get());
  waiter.join();
  EXPECT_EQ(event.element.qp, a.get());
  ibv_ack_async_event(&event);
}

TEST_F(AsyncEvent, DestroyingAQpWaitsForTheAcknowledgement) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Drain(a.get());
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
  std::atomic<bool> acknowledged = false;
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_qp(a.release()), 0);
    EXPECT_TRUE(acknowledged);
  });
  acknowledged = true;
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST_F(AsyncEvent, ADestroyedQpTakesItsPendingEventsAlong) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  Drain(a.get());
  pollfd waiting{context->async_fd, POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, kPatience_ms), 1);
  a.reset();
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
}

TEST_F(AsyncEvent, EveryKindHasAName) {
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_SRQ_LIMIT_REACHED), "SRQ limit reached");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_DEVICE_FATAL), "local catastrophic error");
}

}  // namespace
}  // namespace rdma_contract
