// A program in the hosts' time: its clocks, timers and time-outs are virtual. Time passes only
// while all of its threads wait. Hours take milliseconds here.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/embedded/program_time.h"
namespace rdmaemu_test {
namespace {

TEST_F(ProgramTimeTest, AllClocksShowTheHostsTime) {
  constexpr clockid_t kClocks[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,   CLOCK_MONOTONIC_COARSE,
                                   CLOCK_REALTIME,  CLOCK_REALTIME_COARSE, CLOCK_BOOTTIME,
                                   CLOCK_TAI};
  std::vector<nanoseconds> before;
  for (const clockid_t clock : kClocks) before.push_back(Read(clock));
  const auto steady = steady_clock::now();
  const auto wall = system_clock::now();
  const time_t whole = time(nullptr);
  timeval tv{};
  ASSERT_EQ(gettimeofday(&tv, nullptr), 0);
  timespec c{};
  ASSERT_EQ(timespec_get(&c, TIME_UTC), TIME_UTC);
  EXPECT_EQ(Of(c), Read(CLOCK_REALTIME));
  EXPECT_EQ(tv.tv_sec, whole);

  host.Advance(seconds(3600) + nanoseconds(7));
  for (size_t i = 0; i < before.size(); i++) {
    EXPECT_EQ(Read(kClocks[i]) - before[i], seconds(3600) + nanoseconds(7)) << "clock " << i;
  }
  EXPECT_EQ(steady_clock::now() - steady, seconds(3600) + nanoseconds(7));
  EXPECT_EQ(system_clock::now() - wall, seconds(3600) + nanoseconds(7));
  EXPECT_EQ(time(nullptr) - whole, 3600);
  timespec by_number{};
  ASSERT_EQ(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &by_number), 0);
  EXPECT_EQ(Of(by_number), Read(CLOCK_MONOTONIC));
}

TEST_F(ProgramTimeTest, TimeStandsWhileTheProgramRuns) {
  const nanoseconds before = Read(CLOCK_MONOTONIC);
  const nanoseconds processor = Read(CLOCK_PROCESS_CPUTIME_ID);
  volatile uint64_t sum = 0;
  while (Read(CLOCK_PROCESS_CPUTIME_ID) - processor < milliseconds(5)) sum = sum + 1;
  EXPECT_EQ(Read(CLOCK_MONOTONIC), before);
}

TEST_F(ProgramTimeTest, EachSleepTakesItsTime) {
  EXPECT_EQ(Took([] { sleep(3600); }), hours(1));
  EXPECT_EQ(Took([] { usleep(250'000); }), milliseconds(250));
  EXPECT_EQ(Took([] { std::this_thread::sleep_for(hours(2)); }), hours(2));
  EXPECT_EQ(Took([] { std::this_thread::sleep_until(system_clock::now() + hours(3)); }), hours(3));
  EXPECT_EQ(Took([] {
              const timespec until = In(Read(CLOCK_MONOTONIC) + hours(4));
              EXPECT_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr), 0);
            }),
            hours(4));
  EXPECT_EQ(Took([] {
              const timespec time{3600, 0};
              EXPECT_EQ(thrd_sleep(&time, nullptr), 0);
            }),
            hours(1));
  EXPECT_EQ(Took([] {
              const timespec time{3600, 0};
              EXPECT_EQ(syscall(SYS_nanosleep, &time, nullptr), 0);
            }),
            hours(1));
}

TEST_F(ProgramTimeTest, EachWaitForDescriptorsTimesOut) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pollfd in{ends[0], POLLIN, 0};
  EXPECT_EQ(Took([&] { EXPECT_EQ(poll(&in, 1, 3'600'000), 0); }), hours(1));
  const timespec hour{3600, 0};
  EXPECT_EQ(Took([&] { EXPECT_EQ(ppoll(&in, 1, &hour, nullptr), 0); }), hours(1));
  EXPECT_EQ(Took([&] {
              timeval left{3600, 0};
              EXPECT_EQ(select(0, nullptr, nullptr, nullptr, &left), 0);
              EXPECT_EQ(left.tv_sec, 0);
            }),
            hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(pselect(0, nullptr, nullptr, nullptr, &hour, nullptr), 0); }),
            hours(1));
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = ends[0]}};
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, ends[0], &event), 0);
  EXPECT_EQ(Took([&] { EXPECT_EQ(epoll_wait(loop, &event, 1, 3'600'000), 0); }), hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(epoll_pwait(loop, &event, 1, 3'600'000, nullptr), 0); }),
            hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(epoll_pwait2(loop, &event, 1, &hour, nullptr), 0); }), hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(poll(&in, 1, 0), 0); }), nanoseconds(0));
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(Took([&] { EXPECT_EQ(epoll_wait(loop, &event, 1, 3'600'000), 1); }), nanoseconds(0));
  close(loop);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ProgramTimeTest, EachWaitForALockTimesOut) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  EXPECT_EQ(Took([&] { EXPECT_EQ(changed.wait_for(lock, hours(1)), std::cv_status::timeout); }),
            hours(1));
  EXPECT_EQ(Took([&] {
              EXPECT_EQ(changed.wait_until(lock, system_clock::now() + hours(1)),
                        std::cv_status::timeout);
            }),
            hours(1));
  lock.unlock();

  sem_t semaphore;
  ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
  EXPECT_EQ(Took([&] {
              const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
              EXPECT_EQ(sem_timedwait(&semaphore, &until), -1);
              EXPECT_EQ(errno, ETIMEDOUT);
            }),
            hours(1));
  sem_destroy(&semaphore);

  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  EXPECT_EQ(Took([&] { EXPECT_EQ(future.wait_for(hours(1)), std::future_status::timeout); }),
            hours(1));

  mtx_t c_mutex;
  cnd_t c_condition;
  ASSERT_EQ(mtx_init(&c_mutex, mtx_timed), thrd_success);
  ASSERT_EQ(cnd_init(&c_condition), thrd_success);
  ASSERT_EQ(mtx_lock(&c_mutex), thrd_success);
  EXPECT_EQ(Took([&] {
              const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
              EXPECT_EQ(cnd_timedwait(&c_condition, &c_mutex, &until), thrd_timedout);
            }),
            hours(1));
  mtx_unlock(&c_mutex);
  cnd_destroy(&c_condition);
  mtx_destroy(&c_mutex);
}

TEST_F(ProgramTimeTest, ALockThatAnotherThreadHoldsTimesOut) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
  ASSERT_EQ(pthread_mutex_lock(&mutex), 0);
  ASSERT_EQ(pthread_rwlock_wrlock(&rwlock), 0);
  std::thread other([&] {
    const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
    EXPECT_EQ(pthread_mutex_timedlock(&mutex, &until), ETIMEDOUT);
    const timespec later = In(Read(CLOCK_MONOTONIC) + hours(1));
    EXPECT_EQ(pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &later), ETIMEDOUT);
  });
  EXPECT_EQ(Took([&] { other.join(); }), hours(2));
  pthread_mutex_unlock(&mutex);
  pthread_rwlock_unlock(&rwlock);

  std::thread sleeper([] { sleep(7200); });
  const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
  EXPECT_EQ(pthread_timedjoin_np(sleeper.native_handle(), nullptr, &until), ETIMEDOUT);
  sleeper.join();
  EXPECT_EQ(HostNow(), hours(4));
}

// ---- RDMA and timers together

// A program retries after 1, 2, 4, 8 s and gives up after 60 s, in a loop of epoll and timerfd.
TEST_F(ProgramTimeTest, ARetryWithBackOffTakesItsTime) {
  const rdmaemu::Fault nobody("at = \"cm.req\", reject = 28");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  const nanoseconds began = Read(CLOCK_MONOTONIC);
  std::vector<int64_t> attempts_s;
  Timerfd retry, give_up;
  give_up.Set(seconds(60));
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {retry.fd(), give_up.fd()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event), 0);
  }
  seconds delay(1);
  for (;;) {
    Pair attempt;
    attempts_s.push_back((Read(CLOCK_MONOTONIC) - began) / seconds(1));
    ASSERT_NO_FATAL_FAILURE(attempt.Resolve());
    ASSERT_EQ(attempt.Connect(), 0);
    ASSERT_THAT(NextEvent(attempt.client.channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
    retry.Set(delay);
    epoll_event event;
    ASSERT_EQ(epoll_wait(loop, &event, 1, -1), 1);
    if (event.data.fd == give_up.fd()) break;
    ASSERT_EQ(retry.Read(), 1u);
    delay *= 2;
  }
  close(loop);
  EXPECT_EQ(attempts_s, (std::vector<int64_t>{0, 1, 3, 7, 15, 31}));
  EXPECT_EQ(Read(CLOCK_MONOTONIC) - began, seconds(60));
}

TEST_F(ProgramTimeTest, AnUnansweredRequestTakesAsLongAsTheProgramSees) {
  const rdmaemu::Fault lost("at = \"cm.req\", drop = true");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  const nanoseconds took = Took(
      [&] { ASSERT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE)); });
  EXPECT_GT(took, seconds(60));
  EXPECT_EQ(HostNow(), took);
}

// A program polls and gives up after a time.
TEST_F(ProgramTimeTest, ALoopThatReadsTheClockGetsToItsEnd) {
  const auto end = steady_clock::now() + seconds(10);
  while (steady_clock::now() < end) {
  }
  EXPECT_LE(steady_clock::now() - end, milliseconds(10));

  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  const auto until = steady_clock::now() + seconds(1);
  ibv_wc completion;
  while (ibv_poll_cq(pair.client.cq, 1, &completion) == 0 && steady_clock::now() < until) {
  }
  EXPECT_LE(steady_clock::now() - until, milliseconds(10));
}

// ---- closing the host

TEST_F(ProgramTimeTest, ClocksNeverGoBackWhenTheHostIsClosed) {
  sleep(7200);
  const nanoseconds before = Read(CLOCK_MONOTONIC), wall = Read(CLOCK_REALTIME);
  ASSERT_EQ(rdmaemu_close(), 0);
  EXPECT_GE(Read(CLOCK_MONOTONIC), before);
  EXPECT_GE(Read(CLOCK_REALTIME), wall);
  // Absolute time-outs use the same clock.
  const timespec until = In(Read(CLOCK_MONOTONIC) + milliseconds(1));
  EXPECT_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr), 0);
  EXPECT_GE(Read(CLOCK_MONOTONIC), Of(until));
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  EXPECT_EQ(never.wait_until(lock, system_clock::now() + milliseconds(1)), std::cv_status::timeout);
  const rdmaemu_options again = Options("virtual");
  ASSERT_EQ(rdmaemu_open(&again), 0);
  EXPECT_GE(Read(CLOCK_MONOTONIC), before);
}

TEST(ProgramTime, NeedsAClockThatStands) {
  for (const char* const clock : {"real", "scaled:2"}) {
    const rdmaemu_options options = Options(clock);
    EXPECT_EQ(rdmaemu_open(&options), -EINVAL) << clock;
    EXPECT_NE(std::string(rdmaemu_last_error()).find("virtual"), std::string::npos);
  }
}

TEST(ProgramTime, ClockProgramIsTheSameInOneWord) {
  rdmaemu_options options{};
  options.size = sizeof options;
  options.clock = "program";
  ASSERT_EQ(rdmaemu_open(&options), 0) << rdmaemu_last_error();
  const nanoseconds before = Read(CLOCK_MONOTONIC);
  sleep(3600);
  EXPECT_EQ(Read(CLOCK_MONOTONIC) - before, hours(1));
  ASSERT_EQ(rdmaemu_close(), 0);
}

TEST(ProgramTime, TheEnvironmentTurnsItOn) {
  ASSERT_EQ(setenv("RDMAEMU_PROGRAM_TIME", "1", 1), 0);
  ASSERT_EQ(rdmaemu_open(nullptr), 0) << rdmaemu_last_error();
  unsetenv("RDMAEMU_PROGRAM_TIME");
  const nanoseconds before = Read(CLOCK_MONOTONIC);
  sleep(3600);
  EXPECT_EQ(Read(CLOCK_MONOTONIC) - before, hours(1));
  ASSERT_EQ(rdmaemu_close(), 0);
}

// Advancing a manual clock advances the time of the program under test.
TEST(ProgramTime, AManualClockMovesTheProgramToo) {
  const rdmaemu_options options = Options("manual");
  ASSERT_EQ(rdmaemu_open(&options), 0) << rdmaemu_last_error();
  std::atomic<bool> is_over{false};
  std::thread program([&] {
    sleep(3600);
    is_over = true;
  });
  ASSERT_EQ(rdmaemu_advance(3'599'000'000'000), 0);
  EXPECT_FALSE(is_over);
  while (!is_over) ASSERT_EQ(rdmaemu_advance(1'000'000'000), 0);
  program.join();
  ASSERT_EQ(rdmaemu_close(), 0);
}

}  // namespace
}  // namespace rdmaemu_test
