// A program without any knowledge of the emulator waits by the C library's functions. These
// functions run the hosts.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/embedded/two_hosts.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RDMAEMU_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RDMAEMU_SANITIZED
#endif
#endif

namespace rdmaemu_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

nanoseconds Now() { return nanoseconds(rdmaemu_now()); }

void MakeNonBlocking(int fd) { ASSERT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0); }

class WaitsTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  // A connection request to a host that does not exist. The CM fails it after its retries.
  void ConnectToNobody() {
    ASSERT_EQ(rdmaemu_rule_add("at = \"cm.req\", drop = true", nullptr, 0), 0);
    ASSERT_NO_FATAL_FAILURE(pair.Listen());
    ASSERT_NO_FATAL_FAILURE(pair.Resolve());
    ASSERT_EQ(pair.Connect(), 0);
  }
  // Returns the event of a non-blocking channel.
  int EventOf(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel, &event) != 0) return -errno;
    const int type = event->event;
    rdma_ack_cm_event(event);
    return type;
  }

  Pair pair;
};

TEST_F(WaitsTest, EachPostRunsTheHost) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  for (int i = 0; i < 3; i++) ASSERT_EQ(pair.server.Receive(), 0);
  ibv_wc completion;
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(pair.client.Send(), 0);
    ASSERT_EQ(ibv_poll_cq(pair.server.cq, 1, &completion), 1) << "message " << i;
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
}

// A transfer moves no virtual time, so the rule's window is not skipped.
TEST_F(WaitsTest, ARuleWithAWindowOfTimeFiresInTheWindowOnly) {
  using std::chrono::milliseconds;
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const rdmaemu::Fault window(
      "at = \"wc.send\", status = \"general_err\", from_ms = 500, until_ms = 1500");
  const auto transfer = [&] {
    EXPECT_EQ(pair.server.Receive(), 0);
    EXPECT_EQ(pair.client.Send(), 0);
    EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS));
    return NextCompletion(pair.client.cq);
  };
  EXPECT_THAT(transfer(), CompletionIs(IBV_WC_SUCCESS));
  host.Advance(milliseconds(600));
  EXPECT_THAT(transfer(), CompletionIs(IBV_WC_GENERAL_ERR));
  EXPECT_EQ(window.fired(), 1u);
}

TEST_F(WaitsTest, ATransferMovesNoVirtualTime) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const nanoseconds before = Now();
  for (int i = 0; i < 100; i++) {
    ASSERT_EQ(pair.server.Receive(), 0);
    ASSERT_EQ(pair.client.Send(), 0);
    EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS));
    EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS));
    pollfd idle{pair.client.channel->fd, POLLIN, 0};
    ASSERT_EQ(poll(&idle, 1, 0), 0);
  }
  EXPECT_EQ(Now(), before);
}

TEST_F(WaitsTest, EpollReturnsWhenTheConnectionManagerGivesUp) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  ASSERT_NO_FATAL_FAILURE(MakeNonBlocking(pair.client.channel->fd));
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = pair.client.channel->fd}};
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, pair.client.channel->fd, &event), 0);
  EXPECT_EQ(EventOf(pair.client.channel), -EAGAIN);
  ASSERT_EQ(epoll_wait(loop, &event, 1, -1), 1);
  EXPECT_EQ(EventOf(pair.client.channel), RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_GT(Now(), seconds(1));
  close(loop);
}

TEST_F(WaitsTest, EachFormOfEpollWaitRunsTheHost) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, pair.client.channel->fd, &event), 0);
  const nanoseconds before = Now();
  EXPECT_EQ(epoll_pwait(loop, &event, 1, 20, nullptr), 0);
  EXPECT_EQ(Now() - before, milliseconds(20));
  const timespec limit{0, 30'000'000};
  EXPECT_EQ(epoll_pwait2(loop, &event, 1, &limit, nullptr), 0);
  EXPECT_EQ(Now() - before, milliseconds(50));
  EXPECT_EQ(epoll_pwait2(loop, &event, 1, nullptr, nullptr), 1);
  EXPECT_EQ(epoll_pwait(loop, &event, 1, -1, nullptr), 1);
  close(loop);
}

TEST_F(WaitsTest, EventfdReadOfAChannelWaitsToo) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  eventfd_t count = 0;
  EXPECT_EQ(eventfd_read(pair.client.channel->fd, &count), 0);
  EXPECT_EQ(count, 1u);
}

// The mask of a wait takes the place of the thread's during the wait, as ppoll(2) says.
TEST_F(WaitsTest, AWaitsMaskLetsABlockedSignalIn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer delays the handlers of signals";
#endif
  struct sigaction action {
  }, before;
  static volatile sig_atomic_t handled;
  handled = 0;
  action.sa_handler = [](int) { handled = handled + 1; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  sigset_t blocked, none, own;
  sigemptyset(&none);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &own), 0);
  pollfd channel{pair.client.channel->fd, POLLIN, 0};
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_EQ(ppoll(&channel, 1, nullptr, &none), -1);
  EXPECT_EQ(errno, EINTR);
  EXPECT_EQ(handled, 1);
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_EQ(pselect(0, nullptr, nullptr, nullptr, nullptr, &none), -1);
  EXPECT_EQ(errno, EINTR);
  EXPECT_EQ(handled, 2);
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_EQ(epoll_pwait(loop, &event, 1, -1, &none), -1);
  EXPECT_EQ(errno, EINTR);
  EXPECT_EQ(handled, 3);
  close(loop);
  ASSERT_EQ(raise(SIGUSR1), 0);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EXPECT_EQ(ppoll(&channel, 1, nullptr, &blocked), 1) << "a wait that does not let it in";
  EXPECT_EQ(handled, 3);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &own, nullptr), 0);
  EXPECT_EQ(handled, 4);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(WaitsTest, SelectReturnsWhenTheConnectionManagerGivesUp) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  const int fd = pair.client.channel->fd;
  fd_set in, except;
  FD_ZERO(&in);
  FD_ZERO(&except);
  FD_SET(fd, &in);
  FD_SET(fd, &except);
  timeval limit{100, 0};
  ASSERT_EQ(select(fd + 1, &in, nullptr, &except, &limit), 1);
  EXPECT_TRUE(FD_ISSET(fd, &in));
  EXPECT_FALSE(FD_ISSET(fd, &except));
  EXPECT_GT(limit.tv_sec, 80) << "Linux tells what is left";
}

TEST_F(WaitsTest, ReadOfAChannelsDescriptorWaitsToo) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  uint64_t count = 0;
  EXPECT_EQ(read(pair.client.channel->fd, &count, sizeof count), ssize_t{sizeof count});
  EXPECT_EQ(count, 1u);
}

TEST_F(WaitsTest, VirtualTimePassesAsFarAsATimeOutAndNoFurther) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  const nanoseconds before = Now();
  pollfd channel{pair.client.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&channel, 1, 20), 0) << "the CM repeats its request after seconds";
  EXPECT_EQ(Now() - before, milliseconds(20));
  const timespec time{0, 30'000'000};
  ASSERT_EQ(nanosleep(&time, nullptr), 0);
  EXPECT_EQ(Now() - before, milliseconds(50));
  ASSERT_EQ(usleep(1000), 0);
  EXPECT_EQ(Now() - before, milliseconds(51));
}

TEST_F(WaitsTest, OwnTimersEndAWaitOfTheHosts) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const itimerspec after{{0, 0}, {0, 20'000'000}};
  ASSERT_EQ(timerfd_settime(timer, 0, &after, nullptr), 0);
  pollfd fds[] = {{timer, POLLIN, 0}, {pair.client.channel->fd, POLLIN, 0}};
  ASSERT_EQ(poll(fds, 2, -1), 1);
  EXPECT_EQ(fds[0].revents, POLLIN);
  EXPECT_EQ(fds[1].revents, 0);
  uint64_t expirations = 0;
  EXPECT_EQ(read(timer, &expirations, sizeof expirations), ssize_t{sizeof expirations});
  close(timer);
}

TEST_F(WaitsTest, ASignalEndsAWaitWithEintr) {
  struct sigaction action {
  }, before;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval after{{0, 0}, {0, 20'000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &after, nullptr), 0);
  pollfd channel{pair.client.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&channel, 1, -1), -1);
  EXPECT_EQ(errno, EINTR);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_F(WaitsTest, ADeadlockIsFoundAfterAThreadHasEnded) {
  std::thread([] {}).join();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.client.channel, &event), -1);
  EXPECT_EQ(errno, EDEADLK);
  EXPECT_NE(rdmaemu::Timeline().find("every thread of the program waits"), std::string::npos);
}

// The other thread waits for a lock, so time jumps.
TEST_F(WaitsTest, TimeJumpsWhileTheOtherThreadsWaitForALock) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::thread worker([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
  });
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
  {
    const std::lock_guard lock(mutex);
    is_done = true;
  }
  changed.notify_one();
  worker.join();
}

// The last thread that begins to wait runs the hosts, also when it waits for a lock.
TEST_F(WaitsTest, AnEventWakesAThreadWhileAnotherOneWaitsForIt) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  std::mutex mutex;
  std::condition_variable changed;
  int seen = -1;
  std::thread loop([&] {
    pollfd channel{pair.client.channel->fd, POLLIN, 0};
    const int ready = poll(&channel, 1, -1);
    const std::lock_guard lock(mutex);
    seen = ready == 1 ? EventOf(pair.client.channel) : -2;
    changed.notify_one();
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, seconds(300), [&] { return seen != -1; }));
  }
  EXPECT_EQ(seen, RDMA_CM_EVENT_UNREACHABLE);
  loop.join();
}

TEST_F(WaitsTest, ASemaphoreIsWaitedForToo) {
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  sem_t done;
  ASSERT_EQ(sem_init(&done, 0, 0), 0);
  std::thread loop([&] {
    pollfd channel{pair.client.channel->fd, POLLIN, 0};
    EXPECT_EQ(poll(&channel, 1, -1), 1);
    sem_post(&done);
  });
  timespec until;
  ASSERT_EQ(clock_gettime(CLOCK_REALTIME, &until), 0);
  until.tv_sec += 300;
  EXPECT_EQ(sem_timedwait(&done, &until), 0);
  loop.join();
  until.tv_sec -= 300;
  EXPECT_EQ(sem_timedwait(&done, &until), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  sem_destroy(&done);
}

TEST_F(WaitsTest, ADeadlockIsFoundWhileAnotherThreadWaitsForALock) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's pthread_cond_wait calls the C library's";
#endif
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::thread worker([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
  });
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.client.channel, &event), -1);
  EXPECT_EQ(errno, EDEADLK);
  {
    const std::lock_guard lock(mutex);
    is_done = true;
  }
  changed.notify_one();
  worker.join();
}

// The server holds the request until its own timer fires. The client does not time out meanwhile.
TEST_F(WaitsTest, ATimerOfTheProgramIsWaitedForBeforeThePeerGivesUp) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  ASSERT_NO_FATAL_FAILURE(pair.TakeRequest());
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const itimerspec after{{0, 0}, {0, 20'000'000}};
  ASSERT_EQ(timerfd_settime(timer, 0, &after, nullptr), 0);
  pollfd fds[] = {{timer, POLLIN, 0}, {pair.client.channel->fd, POLLIN, 0}};
  ASSERT_EQ(poll(fds, 2, -1), 1);
  EXPECT_EQ(fds[1].revents, 0) << "the connection manager gave up";
  close(timer);
}

TEST_F(WaitsTest, ADestructorOfThreadSpecificDataMayWait) {
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key, [](void*) { usleep(1000); }), 0);
  for (int i = 0; i < 10; i++) {
    std::thread([&] {
      usleep(1);
      pthread_setspecific(key, &key);
    }).join();
  }
  pthread_key_delete(key);
}

TEST_F(WaitsTest, ArgumentsAreTheKernelsToJudge) {
#ifdef RDMAEMU_SANITIZED
  GTEST_SKIP() << "a sanitizer reads the arguments itself";
#endif
  // Calls through a pointer, because the compiler would check a direct call's buffer.
  int (*volatile wait)(pollfd*, nfds_t, int) = poll;
  EXPECT_EQ(wait(reinterpret_cast<pollfd*>(8), 1, 20), -1);
  EXPECT_EQ(errno, EFAULT);
  pollfd one{-1, POLLIN, 0};
  EXPECT_EQ(wait(&one, UINT32_MAX, 20), -1);
  EXPECT_EQ(errno, EINVAL);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  uint64_t value;
  EXPECT_EQ(read(ends[1], &value, sizeof value), -1);
  EXPECT_EQ(errno, EBADF);
  close(ends[0]);
  close(ends[1]);
  const timespec time{0, 1};
  EXPECT_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &time, nullptr), EINVAL);
}

TEST_F(WaitsTest, AWaitThatEndsWellLeavesErrno) {
  errno = ENOTTY;
  pollfd channel{pair.client.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&channel, 1, 1), 0);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(usleep(1), 0);
  EXPECT_EQ(errno, ENOTTY);
}

TEST_F(WaitsTest, WaitsAreTheSystemsOwnWithoutAHost) {
  ASSERT_EQ(rdmaemu_close(), 0);
  pollfd nothing{-1, POLLIN, 0};
  EXPECT_EQ(poll(&nothing, 1, 1), 0);
  EXPECT_EQ(usleep(1), 0);
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
}

}  // namespace
}  // namespace rdmaemu_test
