// Threads of a program in the hosts' time, which passes only while all of them wait.
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/embedded/program_time.h"

namespace rdmaemu_test {
namespace {

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

// UndefinedBehaviorSanitizer checks an object by a pipe, and takes it for invalid without one.
#ifdef __has_feature
#if __has_feature(undefined_behavior_sanitizer)
#define SANITIZER_NEEDS_DESCRIPTORS
#endif
#endif

#ifndef SANITIZER_NEEDS_DESCRIPTORS
// A thread that begins to wait when the program has no free descriptor.
TEST_F(ProgramTimeTest, ASleepNeedsNoDescriptor) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> taken;
  for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) taken.push_back(fd);
  std::thread other([&] { EXPECT_EQ(Took([] { sleep(60); }), seconds(60)); });
  EXPECT_EQ(Took([] { sleep(3600); }), hours(1));
  other.join();
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}
#endif

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

// The read of the clock behind the loop may advance time by one more step.
TEST_F(ProgramTimeTest, ALoopAroundAShortestSleepSeesTheOtherThreadWakeUp) {
  std::atomic<bool> is_over{false};
  std::thread sleeper([&] {
    EXPECT_EQ(Took([] { sleep(5); }), seconds(5));
    is_over = true;
  });
  EXPECT_LE(Took([&] {
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

// A wait for a condition ends when it has its mutex back, so it may take longer than its time-out.
TEST_F(ProgramTimeTest, AThreadSleepsWithTheMutexOfAWaitThatTimesOut) {
  std::mutex mutex;
  std::condition_variable never;
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    waits = true;
    EXPECT_EQ(Took([&] { EXPECT_EQ(never.wait_for(lock, seconds(1)), std::cv_status::timeout); }),
              seconds(10));
  });
  while (!waits) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(Took([] { sleep(10); }), seconds(10));
  }
  waiter.join();
}

TEST_F(ProgramTimeTest, AThreadSleepsWithTheMutexOfAWaitThatItEnded) {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    waits = true;
    EXPECT_EQ(
        Took([&] { EXPECT_EQ(changed.wait_for(lock, seconds(60)), std::cv_status::no_timeout); }),
        seconds(10));
  });
  while (!waits) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex);
    changed.notify_one();
    EXPECT_EQ(Took([] { sleep(10); }), seconds(10));
  }
  waiter.join();
}

class ManyThreadsTest : public ProgramTimeTest, public ::testing::WithParamInterface<int> {};

TEST_P(ManyThreadsTest, Sleep) {
  std::vector<std::thread> threads;
  for (int i = 0; i < GetParam(); i++) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; round++) {
        EXPECT_EQ(Took([&] { sleep(static_cast<unsigned>(1 + i % 4)); }), seconds(1 + i % 4));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ManyThreadsTest, WaitForAConditionUntilTheirTimeOut) {
  std::mutex mutex;
  std::condition_variable never;
  std::vector<std::thread> threads;
  for (int i = 0; i < GetParam(); i++) {
    threads.emplace_back([&, i] {
      std::unique_lock lock(mutex);
      const auto end = steady_clock::now() + seconds(1 + i % 4);
      while (never.wait_until(lock, end) == std::cv_status::no_timeout) {
      }
      EXPECT_EQ(steady_clock::now(), end);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Threads, ManyThreadsTest, ::testing::Values(8, 9, 100),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace rdmaemu_test
