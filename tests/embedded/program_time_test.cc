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

#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

nanoseconds HostNow() { return nanoseconds(rdmaemu_now()); }

nanoseconds Of(const timespec& time) { return seconds(time.tv_sec) + nanoseconds(time.tv_nsec); }
timespec In(nanoseconds time) {
  return {static_cast<time_t>(time / seconds(1)), static_cast<long>((time % seconds(1)).count())};
}
nanoseconds Read(clockid_t clock) {
  timespec now{};
  EXPECT_EQ(clock_gettime(clock, &now), 0);
  return Of(now);
}

rdmaemu_options Options(const char* clock) {
  rdmaemu_options options{};
  options.size = sizeof options;
  options.clock = clock;
  options.program_time = 1;
  return options;
}

class ProgramTimeTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  ProgramTimeTest() : EmbeddedTest({.program_time = true}) {}

  // Calls `body` and returns the time that it took by the program's clock.
  template <class Body>
  nanoseconds Took(Body&& body) {
    const nanoseconds before = Read(CLOCK_MONOTONIC);
    body();
    return Read(CLOCK_MONOTONIC) - before;
  }
};

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

// ---- timers

class Timerfd {
 public:
  explicit Timerfd(clockid_t clock = CLOCK_MONOTONIC, int flags = TFD_CLOEXEC)
      : fd_(timerfd_create(clock, flags)) {
    EXPECT_GE(fd_, 0) << strerror(errno);
  }
  ~Timerfd() { close(fd_); }
  Timerfd(const Timerfd&) = delete;
  Timerfd& operator=(const Timerfd&) = delete;

  void Set(nanoseconds first, nanoseconds interval = {}, int flags = 0) {
    const itimerspec setting{In(interval), In(first)};
    ASSERT_EQ(timerfd_settime(fd_, flags, &setting, nullptr), 0) << strerror(errno);
  }
  // Waits, and returns the number of expirations.
  uint64_t Read() {
    uint64_t times = 0;
    EXPECT_EQ(read(fd_, &times, sizeof times), ssize_t{sizeof times}) << strerror(errno);
    return times;
  }
  bool IsReadable() const {
    pollfd in{fd_, POLLIN, 0};
    return poll(&in, 1, 0) == 1;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

TEST_F(ProgramTimeTest, ATimerfdExpiresInTheProgramsTime) {
  Timerfd timer;
  timer.Set(hours(1));
  EXPECT_FALSE(timer.IsReadable());
  EXPECT_EQ(Took([&] { EXPECT_EQ(timer.Read(), 1u); }), hours(1));
  EXPECT_FALSE(timer.IsReadable());

  timer.Set(seconds(1), seconds(10));
  sleep(35);
  itimerspec left{};
  ASSERT_EQ(timerfd_gettime(timer.fd(), &left), 0);
  EXPECT_EQ(Of(left.it_value), seconds(6));
  EXPECT_EQ(Of(left.it_interval), seconds(10));
  EXPECT_EQ(timer.Read(), 4u);
  EXPECT_EQ(Took([&] { EXPECT_EQ(timer.Read(), 1u); }), seconds(6));

  timer.Set(nanoseconds(0));
  sleep(100);
  EXPECT_FALSE(timer.IsReadable()) << "disarmed";
  timer.Set(Read(CLOCK_MONOTONIC) + seconds(5), {}, TFD_TIMER_ABSTIME);
  EXPECT_EQ(Took([&] { EXPECT_EQ(timer.Read(), 1u); }), seconds(5));
  timer.Set(nanoseconds(1), {}, TFD_TIMER_ABSTIME);
  EXPECT_TRUE(timer.IsReadable()) << "a moment that has passed";
}

TEST_F(ProgramTimeTest, SettingATimerfdForgetsWhatItCounted) {
  Timerfd timer(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  timer.Set(seconds(1), seconds(1));
  sleep(3);
  timer.Set(seconds(5));
  uint64_t times;
  EXPECT_EQ(read(timer.fd(), &times, sizeof times), -1);
  EXPECT_EQ(errno, EAGAIN);
  const itimerspec setting{{0, 0}, {0, 2'000'000'000}};
  EXPECT_EQ(timerfd_settime(timer.fd(), 0, &setting, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(timerfd_create(CLOCK_THREAD_CPUTIME_ID, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

// The program may have opened another file with the same number since.
TEST_F(ProgramTimeTest, AClosedTimerfdWritesIntoNoOtherFile) {
  auto timer = std::make_unique<Timerfd>();
  timer->Set(seconds(1), seconds(1));
  const int number = timer->fd();
  timer.reset();
  char path[] = "/tmp/rdmaemu-program-time-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_EQ(file, number) << "the lowest free number";
  sleep(10);
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
  close(file);
  unlink(path);
}

TEST_F(ProgramTimeTest, ClosedTimerfdsLeaveNothingBehind) {
  constexpr int kMost = 100;
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 10 * kMost; i++) {
    Timerfd timer;
    timer.Set(seconds(1));
    ASSERT_LT(timer.fd(), before + kMost) << "each one that was closed keeps a descriptor";
  }
}

TEST_F(ProgramTimeTest, ADuplicateOfATimerfdIsTheTimer) {
  int duplicate;
  {
    Timerfd timer;
    duplicate = dup(timer.fd());
  }
  const itimerspec setting{{0, 0}, {3600, 0}};
  ASSERT_EQ(timerfd_settime(duplicate, 0, &setting, nullptr), 0) << strerror(errno);
  uint64_t times = 0;
  EXPECT_EQ(Took([&] { EXPECT_EQ(read(duplicate, &times, sizeof times), 8); }), hours(1));
  EXPECT_EQ(times, 1u);
  close(duplicate);
}

std::atomic<int> g_signals{0}, g_value{0};

class SignalsTest : public ProgramTimeTest {
 protected:
  SignalsTest() {
    g_signals = g_value = 0;
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      g_signals++;
      g_value = info->si_value.sival_int;
    };
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(sigaction(SIGALRM, &action, &before_), 0);
  }
  ~SignalsTest() override { sigaction(SIGALRM, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_F(SignalsTest, AnAlarmInterruptsAWait) {
  EXPECT_EQ(alarm(60), 0u);
  EXPECT_EQ(Took([] {
              EXPECT_EQ(poll(nullptr, 0, 3'600'000), -1);
              EXPECT_EQ(errno, EINTR);
            }),
            seconds(60));
  EXPECT_EQ(g_signals, 1);
  alarm(60);
  sleep(10);
  EXPECT_EQ(alarm(0), 50u);
  sleep(100);
  EXPECT_EQ(g_signals, 1);
}

TEST_F(SignalsTest, AnIntervalTimerOfTheProcess) {
  const itimerval setting{{10, 0}, {60, 500'000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &setting, nullptr), 0);
  EXPECT_EQ(Took([] { EXPECT_EQ(sleep(100), 40u) << "rounded, of 39.5 s"; }),
            seconds(60) + milliseconds(500));
  EXPECT_EQ(Took([] { sleep(100); }), seconds(10));
  itimerval left{};
  ASSERT_EQ(getitimer(ITIMER_REAL, &left), 0);
  EXPECT_EQ(left.it_value.tv_sec, 10);
  EXPECT_EQ(left.it_interval.tv_sec, 10);
  const itimerval off{};
  ASSERT_EQ(setitimer(ITIMER_REAL, &off, &left), 0);
  EXPECT_EQ(g_signals, 2);
}

TEST_F(SignalsTest, ATimerSendsItsSignalWithItsValue) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGALRM;
  event.sigev_value.sival_int = 4711;
  timer_t timer;
  ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  const itimerspec setting{{0, 0}, {3600, 0}};
  ASSERT_EQ(timer_settime(timer, 0, &setting, nullptr), 0);
  EXPECT_EQ(Took([] { EXPECT_EQ(sleep(7200), 3600u); }), hours(1));
  EXPECT_EQ(g_signals, 1);
  EXPECT_EQ(g_value, 4711);

  sigset_t alarms, before;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &alarms, &before), 0);
  const itimerspec often{{1, 0}, {1, 0}};
  ASSERT_EQ(timer_settime(timer, 0, &often, nullptr), 0);
  EXPECT_EQ(Took([] { EXPECT_EQ(sleep(10), 0u); }), seconds(10))
      << "blocked signals interrupt nothing";
  EXPECT_EQ(timer_getoverrun(timer), 9);
  siginfo_t info{};
  const timespec day{86400, 0};
  EXPECT_EQ(Took([&] { EXPECT_EQ(sigtimedwait(&alarms, &info, &day), SIGALRM); }), nanoseconds(0));
  EXPECT_EQ(Took([&] { EXPECT_EQ(sigtimedwait(&alarms, &info, &day), SIGALRM); }), seconds(1));
  ASSERT_EQ(timer_delete(timer), 0);
  EXPECT_EQ(Took([&] { EXPECT_EQ(sigtimedwait(&alarms, &info, &day), -1); }), hours(24));
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

TEST_F(SignalsTest, ATimerStartsAThread) {
  static sem_t done;
  ASSERT_EQ(sem_init(&done, 0, 0), 0);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = [](sigval value) {
    g_value = value.sival_int;
    sem_post(&done);
  };
  event.sigev_value.sival_int = 12;
  timer_t timer;
  ASSERT_EQ(timer_create(CLOCK_REALTIME, &event, &timer), 0);
  const itimerspec setting{{0, 0}, {60, 0}};
  ASSERT_EQ(timer_settime(timer, 0, &setting, nullptr), 0);
  const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(sem_timedwait(&done, &until), 0); }), seconds(60));
  EXPECT_EQ(g_value, 12);
  timer_delete(timer);
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

// ---- threads

TEST_F(ProgramTimeTest, TimePassesOnlyWhileAllThreadsWait) {
  std::atomic<bool> is_done{false};
  std::thread busy([&] {
    const nanoseconds before = Read(CLOCK_MONOTONIC);
    const nanoseconds processor = Read(CLOCK_THREAD_CPUTIME_ID);
    volatile uint64_t sum = 0;
    while (Read(CLOCK_THREAD_CPUTIME_ID) - processor < milliseconds(20)) sum = sum + 1;
    EXPECT_EQ(Read(CLOCK_MONOTONIC), before);
    is_done = true;
  });
  EXPECT_EQ(Took([] { sleep(3600); }), hours(1));
  EXPECT_TRUE(is_done) << "the sleep ended while a thread ran";
  busy.join();
}

TEST_F(ProgramTimeTest, ThreadsSleepSideBySide) {
  std::vector<std::thread> threads;
  std::atomic<int> awake{0};
  for (int i = 1; i <= 4; i++) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 25; round++) {
        EXPECT_EQ(Took([&] { sleep(static_cast<unsigned>(i)); }), seconds(i));
      }
      awake++;
    });
  }
  EXPECT_EQ(Took([&] {
              for (std::thread& thread : threads) thread.join();
            }),
            seconds(100));
  EXPECT_EQ(awake, 4);
}

TEST_F(ProgramTimeTest, AConditionEndsAWaitBeforeItsTimeOut) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::thread other([&] {
    sleep(5);
    const std::lock_guard lock(mutex);
    is_done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  EXPECT_EQ(Took([&] { EXPECT_TRUE(changed.wait_for(lock, hours(1), [&] { return is_done; })); }),
            seconds(5));
  lock.unlock();
  other.join();

  sem_t posted;
  ASSERT_EQ(sem_init(&posted, 0, 0), 0);
  std::thread poster([&] {
    sleep(5);
    sem_post(&posted);
  });
  const timespec until = In(Read(CLOCK_REALTIME) + hours(1));
  EXPECT_EQ(Took([&] { EXPECT_EQ(sem_timedwait(&posted, &until), 0); }), seconds(5));
  poster.join();
  sem_destroy(&posted);
}

// No thread waits for time. A thread that a descriptor wakes up must not see its timer expire. No
// wake-up is lost between two parts of a wait.
TEST_F(ProgramTimeTest, NoTimePassesWhileTwoThreadsHandATurnToEachOther) {
  constexpr int kTurns = 1000;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_mine = false;
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const nanoseconds before = Read(CLOCK_MONOTONIC);
  std::thread other([&] {
    Timerfd timer;
    for (int turn = 0; turn < kTurns; turn++) {
      timer.Set(seconds(5));
      pollfd fds[] = {{event, POLLIN, 0}, {timer.fd(), POLLIN, 0}};
      while ((fds[0].revents & POLLIN) == 0) {
        poll(fds, 2, -1);
        if (fds[1].revents != 0) timer.Read();
      }
      eventfd_t value;
      eventfd_read(event, &value);
      {
        const std::lock_guard lock(mutex);
        is_mine = true;
      }
      changed.notify_one();
    }
  });
  for (int turn = 0; turn < kTurns; turn++) {
    eventfd_write(event, 1);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_mine; });
    is_mine = false;
  }
  other.join();
  EXPECT_EQ(Read(CLOCK_MONOTONIC), before);
  close(event);
}

TEST_F(ProgramTimeTest, AFutexWaitForAnotherValueTakesNoTime) {
  uint32_t word = 1;
  const timespec limit{100, 0};
  EXPECT_EQ(Took([&] {
              EXPECT_EQ(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, &limit, nullptr, 0), -1);
              EXPECT_EQ(errno, EAGAIN);
            }),
            nanoseconds(0));
}

// Its steps are 10 ms at most, whatever the other thread waits for.
TEST_F(ProgramTimeTest, ALoopThatReadsTheClockBesideASleepEndsOnTime) {
  std::thread sleeper([] { sleep(20); });
  const nanoseconds took = Took([] {
    const auto end = steady_clock::now() + seconds(10);
    while (steady_clock::now() < end) {
    }
  });
  EXPECT_LT(took, seconds(10) + milliseconds(10));
  sleeper.join();
}

TEST_F(ProgramTimeTest, ALoopAroundAShortestSleepSeesTheOtherThreadWakeUp) {
  std::atomic<bool> is_over{false};
  std::thread sleeper([&] {
    sleep(5);
    is_over = true;
  });
  EXPECT_LT(Took([&] {
              while (!is_over) usleep(0);
            }),
            seconds(5) + milliseconds(10));
  sleeper.join();
}

TEST_F(ProgramTimeTest, OddArgumentsAreTheKernelsToJudge) {
  EXPECT_EQ(Took([] {
              const timespec hour{3600, 0};
              EXPECT_EQ(clock_nanosleep(CLOCK_TAI, 0, &hour, nullptr), 0);
            }),
            hours(1));
  const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
  const itimerspec setting{{0, 0}, {1, 0}};
  EXPECT_EQ(timerfd_settime(timer, 0x80, &setting, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  close(timer);
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
