// Waits of a library that was loaded by dlopen after the host was opened run the host.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class LateLibraryTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  // In program time, so that the library's sleeps take no real time.
  LateLibraryTest() : EmbeddedTest({.program_time = true}) {
    const char* const runfiles = std::getenv("TEST_SRCDIR");
    const char* const workspace = std::getenv("TEST_WORKSPACE");
    const std::string here = runfiles != nullptr && workspace != nullptr
                                 ? std::string(runfiles) + "/" + workspace + "/"
                                 : std::string();
    library_ = dlopen((here + "tests/embedded/late_library.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~LateLibraryTest() override {
    if (library_ != nullptr) dlclose(library_);
  }

  // Calls the library's function.
  int Call(const char* function, int fd) const {
    auto* const found = reinterpret_cast<int (*)(int)>(dlsym(library_, function));
    return found == nullptr ? -1 : found(fd);
  }
  // Connects to a server that never answers, and waits in the library until the CM gives up.
  void ExpectUnreachableAfter(const char* function) {
    const rdmaemu::Fault lost("at = \"cm.req\", drop = true");
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.Listen());
    ASSERT_NO_FATAL_FAILURE(pair.Resolve());
    ASSERT_EQ(pair.Connect(), 0);
    const auto begin = host.now();
    EXPECT_EQ(Call(function, pair.client.channel->fd), 1);
    EXPECT_GT(host.now() - begin, minutes(1));
    EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
  }

 private:
  void* library_ = nullptr;
};

TEST_F(LateLibraryTest, PollRunsTheHost) { ExpectUnreachableAfter("LatePoll"); }

TEST_F(LateLibraryTest, EpollRunsTheHost) { ExpectUnreachableAfter("LateEpoll"); }

TEST_F(LateLibraryTest, SelectRunsTheHost) { ExpectUnreachableAfter("LateSelect"); }

TEST_F(LateLibraryTest, ATimedWaitForAConditionTakesTheHostsTime) {
  const auto begin = host.now();
  EXPECT_EQ(Call("LateCondition", -1), ETIMEDOUT);
  EXPECT_GE(host.now() - begin, seconds(60));
  EXPECT_LT(host.now() - begin, seconds(61));
}

TEST_F(LateLibraryTest, ASleepTakesTheHostsTime) {
  const auto begin = host.now();
  EXPECT_EQ(Call("LateSleep", -1), 0);
  EXPECT_EQ(host.now() - begin, seconds(60));
}

}  // namespace
}  // namespace rdmaemu_test
