#include "emulator/runtime/starvation_guard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

#include "emulator/runtime/affinity_for_test.h"

namespace rdmaemu::runtime {
namespace {

using testing::Affinity;

cpu_set_t FirstOf(const cpu_set_t& set) {
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, &set)) continue;
    CPU_SET(i, &first);
    break;
  }
  return first;
}

void KeepTo(const cpu_set_t& set) { ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0); }

// Keeps a processor busy with more weight than a thread of nice 19 has.
class BusyThread {
 public:
  explicit BusyThread(const cpu_set_t& set)
      : thread_([this, set] {
          KeepTo(set);
          while (!ends_) {
          }
        }) {}
  ~BusyThread() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

TEST(StarvationGuard, AThreadThatGetsNoTimeIsFreed) {
  const cpu_set_t before = Affinity(), kept = FirstOf(before);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this machine gives the test one processor";
  const BusyThread busy(kept);
  StarvationGuard guard(std::chrono::milliseconds(1));
  std::thread watched([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
    KeepTo(kept);
    ASSERT_TRUE(guard.Watch(kept, before));
    // The thread gets some time, and is ready at each moment.
    cpu_set_t now = Affinity();
    while (CPU_EQUAL(&now, &kept)) now = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&now, &before));
    EXPECT_TRUE(guard.TakeFreed());
    EXPECT_FALSE(guard.TakeFreed());
  });
  watched.join();
}

TEST(StarvationRule, AThreadThatIsReadyAndDoesNotRunIsStarved) {
  StarvationRule rule;
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(5), true));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(5), true));
  EXPECT_TRUE(rule.IsStarved(std::chrono::milliseconds(5), true));
}

TEST(StarvationRule, AThreadThatRunsOrSleepsMeanwhileIsNot) {
  StarvationRule rule;
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(5), true));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(5), true));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(6), true));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(6), true));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(6), false));
  EXPECT_FALSE(rule.IsStarved(std::chrono::milliseconds(6), true));
  EXPECT_TRUE(rule.IsStarved(std::chrono::milliseconds(6), true));
}

TEST(StarvationRule, AThreadThatSleepsIsLookedAtLessOften) {
  StarvationRule rule;
  EXPECT_FALSE(rule.IsStarved({}, false));
  EXPECT_EQ(rule.intervals(), 1);
  for (const int intervals : {2, 4, 8, 8}) {
    EXPECT_FALSE(rule.IsStarved({}, false));
    EXPECT_EQ(rule.intervals(), intervals);
  }
  EXPECT_FALSE(rule.IsStarved({}, true));
  EXPECT_EQ(rule.intervals(), 1);
}

}  // namespace
}  // namespace rdmaemu::runtime
