// A wait that nothing can end explains itself once, on stderr and in the timeline: what each thread
// of the program waits for.
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/embedded/pair.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

using testing::HasSubstr;

constexpr char kStall[] = "every thread of the program waits (";

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) count++;
  return count;
}

class StallTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  void ExpectDeadlock() {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(side.channel, &event), -1);
    EXPECT_EQ(errno, EDEADLK);
  }

  Side side;
};

// The tests below run these and read what they print. They pass, so that no failure's message
// repeats the timeline.
TEST_F(StallTest, DISABLED_OfTwoWaits) {
  ExpectDeadlock();
  ExpectDeadlock();
  EXPECT_EQ(CountOf(kStall, rdmaemu::Timeline()), 1u);
}

TEST_F(StallTest, DISABLED_OfTwoThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::thread other([&] {
    pthread_setname_np(pthread_self(), "server");
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
  });
  ExpectDeadlock();
  {
    const std::lock_guard lock(mutex);
    is_done = true;
  }
  changed.notify_one();
  other.join();
  EXPECT_THAT(rdmaemu::Timeline(), HasSubstr("\"server\": pthread_cond_wait"));
}

TEST_F(StallTest, DISABLED_OfACallThatABarrierHolds) {
  const rdmaemu::Fault barrier("at = \"call.create_id\", hold = true");
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(side.channel, &id, nullptr, RDMA_PS_TCP), -1);
  EXPECT_EQ(errno, EDEADLK);
  EXPECT_EQ(CountOf(kStall, rdmaemu::Timeline()), 1u);
}

// The child process reads what this program prints to stderr, and ends the program's wait when the
// report is there.
TEST_F(StallTest, DISABLED_OfAnEventLoop) {
  const int loop = epoll_create1(EPOLL_CLOEXEC), reported = eventfd(0, EFD_CLOEXEC);
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, side.channel->fd, &readable), 0);
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, reported, &readable), 0);
  int printed[2];
  ASSERT_EQ(pipe2(printed, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(printed[1]);
    std::string text;
    for (char part[256]; text.find(kStall) == std::string::npos;) {
      const ssize_t bytes = read(printed[0], part, sizeof part);
      if (bytes <= 0) _exit(1);
      text.append(part, static_cast<size_t>(bytes));
    }
    const uint64_t one = 1;
    _exit(write(STDERR_FILENO, text.data(), text.size()) > 0 &&
                  write(reported, &one, sizeof one) == sizeof one
              ? 0
              : 1);
  }
  const int own_stderr = dup(STDERR_FILENO);
  dup2(printed[1], STDERR_FILENO);
  EXPECT_EQ(epoll_wait(loop, &readable, 1, -1), 1);
  dup2(own_stderr, STDERR_FILENO);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(rdmaemu::Timeline(),
              HasSubstr("\": epoll_wait) and time cannot advance: nothing is due"));
}

Ran RunStall(const std::string& name) {
  return RunSelf("--gtest_also_run_disabled_tests --gtest_filter='*DISABLED_" + name + "'");
}

TEST(Stall, IsExplainedOnceOnStderrAndInTheTimeline) {
  const Ran ran = RunStall("OfTwoWaits");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_EQ(CountOf(kStall, ran.shown), 1u) << ran.shown;
  EXPECT_THAT(ran.shown, HasSubstr("\": an RDMA event) and time cannot advance: nothing is due"));
}

TEST(Stall, NamesWhatEachThreadWaitsFor) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's pthread_cond_wait calls the C library's";
#endif
  const Ran ran = RunStall("OfTwoThreads");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_EQ(CountOf(kStall, ran.shown), 1u) << ran.shown;
  EXPECT_THAT(ran.shown, HasSubstr("\": an RDMA event"));
  EXPECT_THAT(ran.shown, HasSubstr("\"server\": pthread_cond_wait"));
}

TEST(Stall, NamesACallThatABarrierHolds) {
  const Ran ran = RunStall("OfACallThatABarrierHolds");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_THAT(ran.shown, HasSubstr("the call create_id, which a rule holds"));
}

TEST(Stall, OfAnEventLoopIsReportedWhileTheLoopGoesOnWaiting) {
  const Ran ran = RunStall("OfAnEventLoop");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_EQ(CountOf(kStall, ran.shown), 1u) << ran.shown;
}

}  // namespace
}  // namespace rdmaemu_test
