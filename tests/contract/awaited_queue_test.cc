// Completion queues and events of a program that awaits each WRITE before it posts the next
// request. See awaited_test.cc.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

constexpr int kRounds = 8;

class AwaitedQueue : public LoopbackTest {
 protected:
  void Connect() {
    LoopbackTest::Connect();
    channel.reset(ibv_create_comp_channel(context.get()));
    ASSERT_TRUE(channel);
    queue = MakeCq(16, channel.get(), kUser);
    ASSERT_TRUE(queue);
    std::swap(queue, send_cq);
    writer = Make(IBV_QPT_RC, {8, 8, 1, 1, 0}, nullptr, receive_cq.get());
    target = Make(IBV_QPT_RC, {8, 8, 1, 1, 0}, nullptr, receive_cq.get());
    std::swap(queue, send_cq);
    ASSERT_TRUE(writer && target);
    ASSERT_EQ(Join(writer.get(), target.get()), 0);
    ASSERT_EQ(Join(target.get(), writer.get()), 0);
  }
  int Write(ibv_qp* qp, uint64_t wr_id, size_t at = 0) {
    ibv_sge piece{data.address() + 2048 + at, 8, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma = {data.address() + at, mr->rkey};
    return ibv_post_send(qp, &wr, &bad);
  }
  ibv_wc Next(ibv_cq* cq) {
    const Completion next = PollOne(cq);
    EXPECT_TRUE(next.found);
    EXPECT_EQ(next.wc.status, IBV_WC_SUCCESS);
    return next.wc;
  }
  void Await(ibv_qp* qp, uint64_t wr_id) {
    ASSERT_EQ(Write(qp, wr_id), 0);
    ASSERT_EQ(Next(qp->send_cq).wr_id, wr_id);
  }
  void AwaitSome(ibv_qp* qp) {
    for (uint64_t i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Await(qp, 1000 + i));
  }

  Channel channel;
  Cq queue;  // the send CQ of `writer`, on `channel`
  Qp writer, target;
};

TEST_F(AwaitedQueue, AnArmedQueueRaisesAnEventForEachRequest) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  for (uint64_t i = 0; i < kRounds; i++) {
    ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
    ASSERT_EQ(Write(writer.get(), i), 0);
    ibv_cq* raised = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &raised, &user), 0);
    EXPECT_EQ(raised, queue.get());
    EXPECT_EQ(Next(queue.get()).wr_id, i);
  }
  ibv_ack_cq_events(queue.get(), kRounds);
}

// The waiting thread arms the queue and looks once more, as ibv_get_cq_event(3) says.
TEST_F(AwaitedQueue, AThreadThatSleepsMissesNoCompletion) {
  constexpr uint64_t kRequests = 2000;
  Connect();
  std::atomic<uint64_t> done = 0;
  std::thread waiter([&] {
    unsigned events = 0;
    while (done < kRequests) {
      ibv_wc wc{};
      if (ibv_poll_cq(queue.get(), 1, &wc) == 1) {
        EXPECT_EQ(wc.wr_id, done);
        done++;
        continue;
      }
      if (ibv_req_notify_cq(queue.get(), 0) != 0) break;
      if (ibv_poll_cq(queue.get(), 1, &wc) == 1) {
        EXPECT_EQ(wc.wr_id, done);
        done++;
        continue;
      }
      ibv_cq* raised = nullptr;
      void* user = nullptr;
      if (ibv_get_cq_event(channel.get(), &raised, &user) != 0) break;
      events++;
    }
    ibv_ack_cq_events(queue.get(), events);
  });
  for (uint64_t i = 0; i < kRequests; i++) {
    EXPECT_EQ(Write(writer.get(), i), 0);
    while (done <= i) sched_yield();
  }
  waiter.join();
  EXPECT_EQ(done, kRequests);
}

TEST_F(AwaitedQueue, CompletionsOfOneQueuePairKeepTheirOrder) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  for (uint64_t round = 0; round < 200; round++) {
    const uint64_t burst = 1 + round % 5;
    for (uint64_t i = 0; i < burst; i++) ASSERT_EQ(Write(writer.get(), round * 10 + i), 0);
    for (uint64_t i = 0; i < burst; i++) EXPECT_EQ(Next(queue.get()).wr_id, round * 10 + i);
  }
}

TEST_F(AwaitedQueue, ResizingKeepsACompletion) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  for (uint64_t i = 0; i < kRounds; i++) {
    ASSERT_EQ(Write(writer.get(), i), 0);
    if (ibv_resize_cq(queue.get(), 16 + static_cast<int>(i)) != 0) GTEST_SKIP() << "no resizing";
    EXPECT_EQ(Next(queue.get()).wr_id, i);
  }
}

TEST_F(AwaitedQueue, ACompletionOutlivesItsQueuePair) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  const uint32_t qpn = writer->qp_num;
  ASSERT_EQ(Write(writer.get(), 7), 0);
  writer.reset();
  ibv_wc wc{};
  // rdma_rxe keeps the completion. Libraries of RNICs remove it.
  if (ibv_poll_cq(queue.get(), 1, &wc) == 1) {
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.qp_num, qpn);
  }
  EXPECT_EQ(ibv_poll_cq(queue.get(), 1, &wc), 0);
}

TEST_F(AwaitedQueue, ThreadsOnTheirOwnQueuePairsDoNotDisturbEachOther) {
  Connect();
  constexpr uint64_t kRequests = 3000;
  std::thread other([&] {
    for (uint64_t i = 0; i < kRequests; i++) {
      ASSERT_EQ(Write(a.get(), i, 64), 0);
      ASSERT_EQ(Next(send_cq.get()).wr_id, i);
    }
  });
  for (uint64_t i = 0; i < kRequests; i++) ASSERT_NO_FATAL_FAILURE(Await(writer.get(), i));
  other.join();
}

std::atomic<int> g_held = 0, g_released = 0;
void HoldUntilReleased(int) {
  const int number = ++g_held;
  while (g_released < number) sched_yield();
}

// ibv_poll_cq(3) does not block, whatever interrupts the thread that posts.
TEST_F(AwaitedQueue, APostingThreadThatASignalHoldsDoesNotHoldPolls) {
  constexpr int kSignals = 300;
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  struct sigaction action {};
  struct sigaction before;
  action.sa_handler = HoldUntilReleased;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  g_held = g_released = 0;
  std::atomic<uint64_t> taken = 0;
  std::atomic<bool> ends = false;
  std::thread poster([&] {
    for (uint64_t i = 0; !ends; i++) {
      EXPECT_EQ(Write(writer.get(), i), 0);
      while (taken <= i && !ends) sched_yield();
    }
  });
  const auto take = [&] {
    ibv_wc wc{};
    if (ibv_poll_cq(queue.get(), 1, &wc) == 1) {
      taken++;
    } else {
      sched_yield();
    }
  };
  for (int sent = 0; sent < kSignals; sent++) {
    const uint64_t until = taken + 1 + static_cast<uint64_t>(sent) % 7;
    while (taken < until) take();
    ASSERT_EQ(pthread_kill(poster.native_handle(), SIGUSR1), 0);
    while (g_held <= sent) take();
    take();
    g_released = sent + 1;
  }
  ends = true;
  poster.join();
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

// ---- events

// Returns the queue whose event is next. nullptr: none within `wait_ms`.
ibv_cq* TakeEvent(ibv_comp_channel* channel, int wait_ms) {
  pollfd poll_for{channel->fd, POLLIN, 0};
  if (poll(&poll_for, 1, wait_ms) != 1) return nullptr;
  ibv_cq* raised = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(channel, &raised, &user) != 0) return nullptr;
  ibv_ack_cq_events(raised, 1);
  return raised;
}
constexpr int kEvent_ms = 10'000;

TEST_F(AwaitedQueue, AnArmedQueueRaisesOneEvent) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  for (uint64_t i = 0; i < kRounds; i++) {
    ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
    for (uint64_t k = 0; k < 3; k++) ASSERT_NO_FATAL_FAILURE(Await(writer.get(), i * 10 + k));
    EXPECT_EQ(TakeEvent(channel.get(), kEvent_ms), queue.get());
    EXPECT_EQ(TakeEvent(channel.get(), 0), nullptr);
  }
}

// A WRITE is no solicited completion. The queue stays armed for a later one.
TEST_F(AwaitedQueue, AQueueThatIsArmedForSolicitedCompletionsRaisesNone) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  ASSERT_EQ(ibv_req_notify_cq(queue.get(), 1), 0);
  for (uint64_t i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Await(writer.get(), i));
  EXPECT_EQ(TakeEvent(channel.get(), 0), nullptr);
  ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
  ASSERT_NO_FATAL_FAILURE(Await(writer.get(), 99));
  EXPECT_EQ(TakeEvent(channel.get(), kEvent_ms), queue.get());
}

// Events of several queues wait at the same time.
TEST_F(AwaitedQueue, QueuesOfOneChannelRaiseAnEventEach) {
  Connect();
  Cq second_queue = MakeCq(16, channel.get(), kUser);
  ASSERT_TRUE(second_queue);
  std::swap(second_queue, send_cq);
  Qp second = Make(IBV_QPT_RC, {8, 8, 1, 1, 0}, nullptr, receive_cq.get());
  Qp second_target = Make(IBV_QPT_RC, {8, 8, 1, 1, 0}, nullptr, receive_cq.get());
  std::swap(second_queue, send_cq);
  ASSERT_TRUE(second && second_target);
  ASSERT_EQ(Join(second.get(), second_target.get()), 0);
  ASSERT_EQ(Join(second_target.get(), second.get()), 0);
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  ASSERT_NO_FATAL_FAILURE(AwaitSome(second.get()));
  for (uint64_t i = 0; i < kRounds; i++) {
    ibv_qp* const order[] = {writer.get(), second.get(), writer.get()};
    for (ibv_qp* const qp : order) {
      ASSERT_EQ(ibv_req_notify_cq(qp->send_cq, 0), 0);
      ASSERT_NO_FATAL_FAILURE(Await(qp, i));
    }
    int of_second = 0;
    for (size_t k = 0; k < std::size(order); k++) {
      ibv_cq* const raised = TakeEvent(channel.get(), kEvent_ms);
      ASSERT_NE(raised, nullptr);
      of_second += raised == second_queue.get();
    }
    EXPECT_EQ(of_second, 1);
    EXPECT_EQ(TakeEvent(channel.get(), 0), nullptr);
  }
}

// ibv_destroy_cq drops the queue's events that nobody has taken.
TEST_F(AwaitedQueue, AnEventIsDroppedWithItsQueue) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
  ASSERT_NO_FATAL_FAILURE(Await(writer.get(), 1));
  writer.reset();
  target.reset();
  queue.reset();
  EXPECT_EQ(TakeEvent(channel.get(), 0), nullptr);
}

// An event loop has the channel's descriptor in its own epoll or poll set, and takes the event
// later than the completion.
TEST_F(AwaitedQueue, AnEventCanBeTakenAfterItsCompletion) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  for (uint64_t i = 0; i < kRounds; i++) {
    ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
    ASSERT_NO_FATAL_FAILURE(Await(writer.get(), i));
    ASSERT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
    EXPECT_EQ(TakeEvent(channel.get(), kEvent_ms), queue.get());
    EXPECT_EQ(TakeEvent(channel.get(), 0), nullptr) << "no completion since it was armed again";
    ASSERT_NO_FATAL_FAILURE(Await(writer.get(), i));
    EXPECT_EQ(TakeEvent(channel.get(), kEvent_ms), queue.get());
  }
}

// Requests of a thread that has called `prepare` raise their events.
class AwaitedQueueOfAThread : public AwaitedQueue {
 protected:
  void ExpectEventsAfter(const std::function<void()>& prepare) {
    std::atomic<uint64_t> posts = 0;
    std::thread poster([&] {
      prepare();
      for (uint64_t posted = 0; posted < kRounds; posted++) {
        while (posts == posted) sched_yield();
        EXPECT_EQ(Write(writer.get(), posted), 0);
      }
    });
    for (uint64_t i = 0; i < kRounds; i++) {
      EXPECT_EQ(ibv_req_notify_cq(queue.get(), 0), 0);
      posts = i + 1;
      EXPECT_EQ(TakeEvent(channel.get(), kEvent_ms), queue.get());
      EXPECT_EQ(Next(queue.get()).wr_id, i);
    }
    poster.join();
  }
};

// Linux lets a thread have descriptors of its own (unshare(2), CLONE_FILES). The numbers of the
// thread that made the channel may be closed in it, or name other files.
TEST_F(AwaitedQueueOfAThread, WithDescriptorsOfItsOwn) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  ExpectEventsAfter([&] {
    EXPECT_EQ(unshare(CLONE_FILES), 0);
    close(channel->fd);
  });
  ExpectEventsAfter([&] {
    EXPECT_EQ(unshare(CLONE_FILES), 0);
    EXPECT_EQ(dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), channel->fd), channel->fd);
  });
}

// A sandbox may refuse system calls to some threads.
TEST_F(AwaitedQueueOfAThread, ThatMayNotWriteToTheChannel) {
  Connect();
  ASSERT_NO_FATAL_FAILURE(AwaitSome(writer.get()));
  ExpectEventsAfter([&] {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(channel->fd), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    EXPECT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  });
}

}  // namespace
}  // namespace rdma_contract
