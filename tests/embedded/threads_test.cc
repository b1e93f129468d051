// Programs of several threads: who waits is woken by what another thread does, and time does not
// run away from a thread that is slow.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

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

// Its peer waits in rdma_get_cm_event, where time would jump over the repeated REQs at once: as
// long as the request is with a program, time passes no faster than the machine's.
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
  // Whether the thread waits by now or begins to wait later.
  EXPECT_EQ(rdmaemu_close(), 0);
  waiter.join();
  EXPECT_EQ(result, -1);
  EXPECT_EQ(error, EIO);
  rdma_destroy_event_channel(channel);
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
}

// As in read(2): a program ends a thread that waits for events.
TEST_F(ThreadsTest, AWaitIsACancellationPoint) {
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
  // Nothing was left locked.
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
}

TEST_F(ThreadsTest, AForkedChildHasNoHost) {
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = rdma_create_event_channel() == nullptr && errno == EIO;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
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
  // Events of ids are acknowledged above; those that nobody took go with their ids.
  accepted.clear();
}

}  // namespace
}  // namespace rdmaemu_test
