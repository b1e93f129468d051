// The timers of a program in the hosts' time: timerfd_create(2), timer_create(2), alarm(2) and
// setitimer(2). They expire while all threads of the program wait, in whatever function.
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "tests/embedded/program_time.h"

namespace rdmaemu_test {
namespace {

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
  int file = mkstemp(path);
  unlink(path);
  // The library's thread reads files of /proc, which have low numbers for a moment.
  while (file != number) {
    const int other = std::exchange(file, dup(file));
    close(other);
  }
  sleep(10);
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
  close(file);
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

std::atomic<int> g_signals{0}, g_value{0}, g_code{0};

class SignalsTest : public ProgramTimeTest {
 protected:
  SignalsTest() {
    g_signals = g_value = 0;
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      g_signals++;
      g_value = info->si_value.sival_int;
      g_code = info->si_code;
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
  EXPECT_EQ(g_code, SI_KERNEL);
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
  EXPECT_EQ(g_code, SI_TIMER);

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

// ---- waits that the library does not replace

TEST_F(SignalsTest, AnAlarmEndsAWaitForAnySignal) {
  EXPECT_EQ(Took([] {
              alarm(60);
              EXPECT_EQ(pause(), -1);
            }),
            seconds(60));
  sigset_t alarms, before;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &alarms, &before), 0);
  EXPECT_EQ(Took([&] {
              const itimerval setting{{0, 0}, {60, 500'000}};
              ASSERT_EQ(setitimer(ITIMER_REAL, &setting, nullptr), 0);
              EXPECT_EQ(sigsuspend(&before), -1);
            }),
            seconds(60) + milliseconds(500));
  EXPECT_EQ(g_signals, 2);
  EXPECT_EQ(Took([&] {
              int signal = 0;
              alarm(10);
              EXPECT_EQ(sigwait(&alarms, &signal), 0);
              EXPECT_EQ(signal, SIGALRM);
            }),
            seconds(10));
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

TEST_F(SignalsTest, ATimersThreadEndsAWaitWithoutATimeOut) {
  static sem_t posted;
  static int pipe_ends[2];
  ASSERT_EQ(sem_init(&posted, 0, 0), 0);
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = [](sigval) {
    sem_post(&posted);
    EXPECT_EQ(write(pipe_ends[1], "x", 1), 1);
  };
  timer_t timer;
  ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  const itimerspec setting{{0, 0}, {60, 0}};
  ASSERT_EQ(timer_settime(timer, 0, &setting, nullptr), 0);
  EXPECT_EQ(Took([] { EXPECT_EQ(sem_wait(&posted), 0); }), seconds(60));
  ASSERT_EQ(timer_settime(timer, 0, &setting, nullptr), 0);
  EXPECT_EQ(Took([] {
              char bytes[2];
              EXPECT_EQ(read(pipe_ends[0], bytes, 1), 1);  // of the first expiration
              EXPECT_EQ(read(pipe_ends[0], bytes, 1), 1);
            }),
            seconds(60));
  timer_delete(timer);
  sem_destroy(&posted);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(ProgramTimeTest, ATimerfdEndsEachBlockingRead) {
  Timerfd timer;
  uint64_t times = 0;
  const iovec into{&times, sizeof times};
  timer.Set(seconds(60));
  EXPECT_EQ(Took([&] { EXPECT_EQ(readv(timer.fd(), &into, 1), ssize_t{sizeof times}); }),
            seconds(60));
  EXPECT_EQ(times, 1u);
}

// A signal interrupts poll(2) even if it does not wait, and the library looks at descriptors in
// this way. The signals come from another process, as time stands while a thread of this one runs.
TEST_F(ProgramTimeTest, ASignalWhileTheLibraryLooksAtATimerfdChangesNothing) {
  constexpr int kRounds = 3000;
  struct sigaction action {
  }, before;
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const std::string self = std::to_string(getpid());
  const pid_t sender = fork();
  if (sender == 0) {
    execl("/bin/sh", "sh", "-c", "while kill -USR1 \"$0\"; do :; done", self.c_str(), nullptr);
    _exit(127);
  }
  Timerfd timer;
  EXPECT_EQ(Took([&] {
              for (int round = 0; round < kRounds; round++) {
                timer.Set(seconds(1));
                uint64_t times = 0;
                while (read(timer.fd(), &times, sizeof times) < 0) ASSERT_EQ(errno, EINTR);
                EXPECT_EQ(times, 1u);
              }
            }),
            seconds(kRounds));
  kill(sender, SIGKILL);
  EXPECT_EQ(waitpid(sender, nullptr, 0), sender);
  sigaction(SIGUSR1, &before, nullptr);
}

// Neither thread is in a wait that the library sees.
TEST_F(SignalsTest, AnAlarmComesWhileAThreadIsJoined) {
  sigset_t alarms, before;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &alarms, &before), 0);
  alarm(60);
  EXPECT_EQ(Took([&] { std::thread([&] { sigsuspend(&before); }).join(); }), seconds(60));
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

TEST_F(SignalsTest, ADeadlockIsSeenAfterATimerHasExpired) {
  alarm(1);
  pause();
  const Side side;
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(side.channel, &event), -1);
  EXPECT_EQ(errno, EDEADLK);
}

}  // namespace
}  // namespace rdmaemu_test
