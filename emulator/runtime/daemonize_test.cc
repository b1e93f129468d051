#include "emulator/runtime/daemonize.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace rdmaemu::runtime {
namespace {

// The daemon is ready only after its parent has said that it waits.
TEST(Daemonize, TellsOnceThatTheDaemonIsNotReady) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  UniqueFd gate(ends[0]), opener(ends[1]);
  int told = 0;
  const auto say = [&] {
    told++;
    opener.Reset();
  };
  DaemonizeResult result =
      Daemonize("/dev/null", std::move(gate), {.say = say, .after = Duration::zero()});
  if (result.in_daemon) {
    char end = 0;
    (void)!read(result.kept.get(), &end, 1);
    result.notice.Ready();
    _exit(0);
  }
  EXPECT_TRUE(result.outcome) << result.outcome.error();
  EXPECT_EQ(told, 1);
}

TEST(Daemonize, SaysNothingIfTheDaemonIsReadyInTime) {
  const auto say = [] { ADD_FAILURE() << "the limit is an hour"; };
  DaemonizeResult result = Daemonize("/dev/null", UniqueFd(open("/dev/null", O_RDONLY)),
                                     {.say = say, .after = std::chrono::hours(1)});
  if (result.in_daemon) {
    result.notice.Ready();
    _exit(0);
  }
  EXPECT_TRUE(result.outcome) << result.outcome.error();
}

TEST(Daemonize, ReturnsTheReasonOfAFailure) {
  DaemonizeResult result =
      Daemonize("/dev/null", UniqueFd(open("/dev/null", O_RDONLY)), {.say = [] {}});
  if (result.in_daemon) {
    result.notice.Failed("the port is used");
    _exit(0);
  }
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error(), "the port is used");
}

}  // namespace
}  // namespace rdmaemu::runtime
