// Programs of several threads. A thread that waits wakes up by the actions of another thread, and
// time does not jump while a thread is slow.
#include <gtest/gtest-spi.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/embedded/two_hosts.h"

namespace {
bool g_is_child = false;
}
// LeakSanitizer calls it at the end of a process. A forked child still has the allocations that its
// parent's other threads referenced from their stacks.
extern "C" int __lsan_is_turned_off() { return g_is_child ? 1 : 0; }

namespace rdmaemu_test {
namespace {

// SIGALRM ends a child that hangs.
constexpr unsigned kMaxChild_seconds = 20;

int StatusOf(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

class ThreadsTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  Pair pair;
};

TEST_F(ThreadsTest, AWaitEndsWithWhatAnotherThreadDoes) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  std::thread server([&] { pair.Accept(); });
  pair.Resolve();
  EXPECT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  server.join();
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
}

// The client waits in rdma_get_cm_event, where time could jump over the repeated REQs. While the
// server processes the request, time runs no faster than real time.
TEST_F(ThreadsTest, ASlowServerIsNotDeclaredDead) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  std::thread server([&] {
    pair.TakeRequest();
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < until) rdma_event_str(RDMA_CM_EVENT_CONNECT_REQUEST);
    pair.server.MakeQp();
    rdma_conn_param parameters = Pair::Parameters();
    EXPECT_EQ(rdma_accept(pair.server.id, &parameters), 0) << strerror(errno);
  });
  pair.Resolve();
  EXPECT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  server.join();
}

TEST_F(ThreadsTest, ClosingTheHostEndsWaits) {
  rdmaemu_close();
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  std::atomic<int> result{1}, error{0};
  std::thread waiter([&] {
    rdma_cm_event* event = nullptr;
    result = rdma_get_cm_event(channel, &event);
    error = errno;
  });
  // Holds whether the thread already waits or begins to wait later.
  EXPECT_EQ(rdmaemu_close(), 0);
  waiter.join();
  EXPECT_EQ(result, -1);
  EXPECT_EQ(error, EIO);
  rdma_destroy_event_channel(channel);
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
}

// A rule holds one thread in a call. Another thread checks this and releases the call.
TEST_F(ThreadsTest, ABarrierHoldsOneThreadUntilAnotherLetsItGo) {
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  rdmaemu::Fault gate("at = \"call.reg_mr\", hold = true");
  std::atomic<bool> returned{false};
  std::thread registrar([&] {
    ibv_mr* const mr = ibv_reg_mr(pair.client.id->pd, pair.client.buffer.data(), 64, 0);
    returned = true;
    EXPECT_NE(mr, nullptr);
    ibv_dereg_mr(mr);
  });
  gate.Wait();
  EXPECT_FALSE(returned);
  gate.Release();
  registrar.join();
  EXPECT_TRUE(returned);
}

TEST_F(ThreadsTest, AWaitForARuleThatDoesNotFireTimesOut) {
  const rdmaemu::Fault rule("name = \"never\", at = \"call.reg_mr\"");
  EXPECT_EQ(rdmaemu_rule_wait("nobody", 1, 1), -ENOENT);
  std::atomic<bool> stop{false};
  std::thread other([&] {  // a program of one thread would be a deadlock
    while (!stop) std::this_thread::yield();
  });
  EXPECT_EQ(rdmaemu_rule_wait("never", 1, 20), -ETIMEDOUT);
  stop = true;
  other.join();
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZES_ADDRESSES 1
#endif
#endif

// As read(2): a program can cancel a thread that waits for events.
TEST_F(ThreadsTest, AWaitIsACancellationPoint) {
#ifdef SANITIZES_ADDRESSES
  GTEST_SKIP() << "AddressSanitizer does not see the stack of a cancelled thread unwound";
#endif
  std::atomic<bool> begun{false};
  struct Argument {
    rdma_event_channel* channel;
    std::atomic<bool>* begun;
  } argument{pair.listener.channel, &begun};
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void* raw) -> void* {
                  const auto& given = *static_cast<Argument*>(raw);
                  *given.begun = true;
                  rdma_cm_event* event = nullptr;
                  rdma_get_cm_event(given.channel, &event);
                  return nullptr;
                },
                &argument),
            0);
  while (!begun) std::this_thread::yield();
  ASSERT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  // The cancelled thread held no lock.
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
}

TEST_F(ThreadsTest, AForkedChildHasNoHost) {
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = rdma_create_event_channel() == nullptr && errno == EIO;
    _exit(refused ? 0 : 1);
  }
  EXPECT_EQ(StatusOf(child), 0);
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
}

// A copy of the parent's host would work on the parent's memory.
TEST_F(ThreadsTest, AForkedChildHasNoTimeAndNoRules) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  const rdmaemu::Fault late("at = \"packet.rc_send_only\", delay_ms = 10");
  ASSERT_EQ(pair.client.Send(), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = rdmaemu_advance(1'000'000'000) == -ENOENT && rdmaemu_now() == -ENOENT &&
                         rdmaemu_run_until_idle() == -ENOENT &&
                         rdmaemu_rules(nullptr, 0) == -ENOENT &&
                         rdmaemu_timeline(nullptr, 0) == -ENOENT && rdmaemu_close() == -ENOENT;
    _exit(refused ? 0 : 1);
  }
  EXPECT_EQ(StatusOf(child), 0);
  ibv_wc completion;
  EXPECT_EQ(ibv_poll_cq(pair.server.cq, 1, &completion), 0) << "the child let time pass here";
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
}

// In most forks another thread is inside the host.
TEST_F(ThreadsTest, AForkedChildIsBehindNoThreadOfItsParent) {
#ifdef SANITIZES_ADDRESSES
  GTEST_SKIP() << "a thread may hold a lock of AddressSanitizer's allocator at the fork";
#endif
  constexpr int kForks = 20;
  std::atomic<bool> stop{false};
  std::thread driver([&] {
    while (!stop) rdmaemu_timeline(nullptr, 0);
  });
  for (int i = 0; i < kForks; i++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kMaxChild_seconds);
      g_is_child = true;
      // Also destroys the objects of threads, as a program does that returns from main.
      exit(rdmaemu_now() == -ENOENT ? 0 : 1);
    }
    EXPECT_EQ(StatusOf(child), 0);
  }
  stop = true;
  driver.join();
}

// A delayed call blocks neither the host nor other threads, and does not change time.
TEST(ThreadsOfManualTime, AHeldUpCallLetsOthersGoOn) {
  rdmaemu::EmbeddingOptions options;
  options.clock = "manual";
  rdmaemu::Embedding host(options);
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(context, nullptr);
  const rdmaemu::Fault slow("at = \"call.alloc_pd\", delay_ms = 50");
  std::atomic<bool> done{false};
  std::thread caller([&] {
    ibv_pd* pd = ibv_alloc_pd(context);
    EXPECT_NE(pd, nullptr);
    done = true;
    ibv_dealloc_pd(pd);
  });
  // rdmaemu_rules is a call of this host, too, and would wait behind the delayed one.
  while (rdmaemu::Timeline().find("call.alloc_pd") == std::string::npos) std::this_thread::yield();
  host.Advance(std::chrono::milliseconds(49));
  EXPECT_FALSE(done);
  EXPECT_EQ(host.now(), std::chrono::milliseconds(49));
  host.Advance(std::chrono::milliseconds(1));
  caller.join();
  EXPECT_TRUE(done);
  EXPECT_EQ(host.now(), std::chrono::milliseconds(50));
  ibv_close_device(context);
}

class ThreadsOnHostsTest : public TwoHostsTest {};

TEST_F(ThreadsOnHostsTest, EachThreadIsAMachine) {
  constexpr int kRounds = 20;
  std::atomic<bool> listens{false};
  std::atomic<int> served{0};
  std::thread server([&] {
    const rdmaemu::OnHost guard("b");
    Side listener;
    rdma_create_id(listener.channel, &listener.id, nullptr, RDMA_PS_TCP);
    sockaddr_in at = At(kAddressOfB, Pair::kPort);
    ASSERT_EQ(rdma_bind_addr(listener.id, Generic(at)), 0) << strerror(errno);
    ASSERT_EQ(rdma_listen(listener.id, 4), 0);
    listens = true;
    for (int round = 0; round < kRounds; round++) {
      Side accepted;
      Event event = NextEvent(listener.channel);
      ASSERT_THAT(event, EventIs(RDMA_CM_EVENT_CONNECT_REQUEST, 0));
      accepted.id = event->id;
      event.Acknowledge();
      accepted.MakeQp();
      EXPECT_EQ(accepted.Receive(), 0);
      rdma_conn_param parameters = Pair::Parameters();
      EXPECT_EQ(rdma_accept(accepted.id, &parameters), 0) << strerror(errno);
      EXPECT_THAT(NextEvent(listener.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
      EXPECT_THAT(NextCompletion(accepted.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
      EXPECT_THAT(NextEvent(listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED, 0));
      served++;
    }
  });
  while (!listens) std::this_thread::yield();
  for (int round = 0; round < kRounds; round++) {
    Pair mine(kAddressOfB);
    ASSERT_NO_FATAL_FAILURE(mine.Resolve());
    ASSERT_EQ(mine.Connect(), 0);
    EXPECT_THAT(NextEvent(mine.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
    EXPECT_EQ(mine.client.Send(), 0);
    EXPECT_THAT(NextCompletion(mine.client.cq), CompletionIs(IBV_WC_SUCCESS));
    EXPECT_EQ(rdma_disconnect(mine.client.id), 0);
  }
  server.join();
  EXPECT_EQ(served, kRounds);
}

TEST_F(ThreadsTest, ManyConnectionsOfManyThreads) {
  constexpr int kClients = 4, kRounds = 20;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  std::atomic<int> established{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; i++) {
    clients.emplace_back([&] {
      for (int round = 0; round < kRounds; round++) {
        Pair mine;
        mine.Resolve();
        if (mine.client.cq == nullptr || mine.Connect() != 0) return;
        const Event event = NextEvent(mine.client.channel);
        EXPECT_THAT(event, EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
        if (event && event->event == RDMA_CM_EVENT_ESTABLISHED) established++;
      }
    });
  }
  std::vector<std::unique_ptr<Side>> accepted;
  for (int left = kClients * kRounds; left > 0;) {
    Event event = NextEvent(pair.listener.channel);
    ASSERT_TRUE(event);
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    accepted.push_back(std::make_unique<Side>());
    accepted.back()->id = event->id;
    accepted.back()->MakeQp();
    rdma_conn_param parameters = Pair::Parameters();
    EXPECT_EQ(rdma_accept(event->id, &parameters), 0) << strerror(errno);
    left--;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(established, kClients * kRounds);
  // Events of ids are acknowledged above. Destroying an id drops its queued events.
  accepted.clear();
}

// The current number of threads decides, not an earlier one.
TEST_F(ThreadsTest, ACompletionThatCannotComeIsAFailureAlsoAfterAThreadHasEnded) {
  std::thread([] {}).join();
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  EXPECT_NONFATAL_FAILURE(NextCompletion(pair.client.cq), "nothing is due");
}

char StateOfThread(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string number, name, state;
  stat >> number >> name >> state;
  return state.empty() ? 'X' : state[0];
}

// Nothing wakes the thread that waits when the other one ends.
TEST_F(ThreadsTest, ADeadlockIsFoundWhenTheLastOtherThreadEnds) {
  const pid_t waiter = gettid();
  rdma_event_channel* const channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  std::thread other([&] {
    while (StateOfThread(waiter) != 'S') std::this_thread::yield();
  });
  other.detach();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
  EXPECT_EQ(errno, EDEADLK);
  rdma_destroy_event_channel(channel);
}

TEST_F(ThreadsTest, ACompletionIsAwaitedWhileAnotherThreadWorks) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  std::thread sender([&] {
    rdmaemu_advance(1000);
    EXPECT_EQ(pair.client.Send(), 0);
  });
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  sender.join();
}

TEST_F(ThreadsTest, AWaitForWorkSaysWhyItEnds) {
  EXPECT_EQ(rdmaemu_wait(0), -EDEADLK);
  EXPECT_NE(std::string(rdmaemu_last_error()), "");
  std::atomic<bool> may_end{false};
  std::thread busy([&] {
    while (!may_end) std::this_thread::yield();
  });
  EXPECT_EQ(rdmaemu_wait(1), -ETIMEDOUT);
  may_end = true;
  busy.join();
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const rdmaemu::Fault lost("at = \"cm.req\", drop = true");
  ASSERT_EQ(pair.Connect(), 0);
  const auto before = host.now();
  while (host.now() == before) ASSERT_EQ(rdmaemu_wait(0), 0);  // time jumps to the repeated REQ
}

}  // namespace
}  // namespace rdmaemu_test
