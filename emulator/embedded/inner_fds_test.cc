#include "emulator/embedded/inner_fds.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "emulator/runtime/unique_fd.h"
#include "gtest/gtest.h"

namespace rdmaemu::embedded {
namespace {

using runtime::UniqueFd;

void Watch(const UniqueFd& epoll, const UniqueFd& fd) {
  epoll_event readable{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &readable), 0);
}

TEST(InnerFd, IsAnEventfdAndADisarmedTimer) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC)),
      timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  EXPECT_TRUE(IsInnerFd(event.get()));
  EXPECT_TRUE(IsInnerFd(timer.get()));
  const itimerspec in_an_hour = {{0, 0}, {3600, 0}};
  ASSERT_EQ(timerfd_settime(timer.get(), 0, &in_an_hour, nullptr), 0);
  EXPECT_FALSE(IsInnerFd(timer.get()));
}

TEST(InnerFd, IsAnEpollOfInnerDescriptorsAlone) {
  const UniqueFd outer(epoll_create1(EPOLL_CLOEXEC)), inner(epoll_create1(EPOLL_CLOEXEC)),
      event(eventfd(0, EFD_CLOEXEC));
  Watch(outer, inner);
  Watch(inner, event);
  EXPECT_TRUE(IsInnerFd(outer.get()));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  Watch(inner, reader);
  EXPECT_FALSE(IsInnerFd(inner.get()));
  EXPECT_FALSE(IsInnerFd(outer.get()));
}

TEST(InnerFd, IsNoPipeAndNoClosedDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  EXPECT_FALSE(IsInnerFd(reader.get()));
  EXPECT_FALSE(IsInnerFd(-1));
}

}  // namespace
}  // namespace rdmaemu::embedded
