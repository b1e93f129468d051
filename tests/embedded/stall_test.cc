// A wait that nothing can end explains itself once, on stderr and in the timeline: what each thread
// of the program waits for.
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
  EXPECT_THAT(rdmaemu::Timeline(), HasSubstr("pthread_cond_wait"));
}

Ran RunStall(const std::string& name) {
  return RunSelf("--gtest_also_run_disabled_tests --gtest_filter='*DISABLED_" + name + "'");
}

TEST(Stall, IsExplainedOnceOnStderrAndInTheTimeline) {
  const Ran ran = RunStall("OfTwoWaits");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_EQ(CountOf(kStall, ran.shown), 1u) << ran.shown;
  EXPECT_THAT(ran.shown, HasSubstr("waits (an RDMA event) and time stands: nothing is due"));
}

TEST(Stall, NamesWhatEachThreadWaitsFor) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's pthread_cond_wait calls the C library's";
#endif
  const Ran ran = RunStall("OfTwoThreads");
  EXPECT_EQ(ran.status, 0) << ran.shown;
  EXPECT_EQ(CountOf(kStall, ran.shown), 1u) << ran.shown;
  EXPECT_THAT(ran.shown, HasSubstr("an RDMA event"));
  EXPECT_THAT(ran.shown, HasSubstr("pthread_cond_wait"));
}

}  // namespace
}  // namespace rdmaemu_test
