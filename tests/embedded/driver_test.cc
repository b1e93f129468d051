// The library cannot intercept waits by system calls that bypass the C library. A thread of the
// library drives the host during them.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

TEST(Driver, AnEventEndsARawSystemCall) {
  ASSERT_EQ(setenv("RDMAEMU_DRIVER_THREAD", "1", 1), 0);
  const rdmaemu::Embedding host;
  Pair pair;
  ASSERT_EQ(rdmaemu_rule_add("at = \"cm.req\", drop = true", nullptr, 0), 0);
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  pollfd channel{pair.client.channel->fd, POLLIN, 0};
  constexpr timespec kLimit{60, 0};
  EXPECT_EQ(syscall(SYS_ppoll, &channel, 1, &kLimit, nullptr, 0), 1);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
}

}  // namespace
}  // namespace rdmaemu_test
