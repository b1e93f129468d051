#include "loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

namespace shout {
namespace {

int CheckSystem(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

}  // namespace

struct Loop::Impl {
  ~Impl() { close(epoll); }
  int epoll = CheckSystem(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  std::map<int, std::shared_ptr<const Callback>> callbacks;
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

// Takes one event at a time, because a callback may destroy the watch of a second event.
void Loop::RunOnce() {
  epoll_event event;
  const int ready = epoll_wait(impl_->epoll, &event, 1, -1);
  if (ready < 0 && errno != EINTR) CheckSystem(ready, "epoll_wait");
  if (ready <= 0) return;
  const auto callback = impl_->callbacks.at(event.data.fd);  // survives its watch
  (*callback)();
}

struct Watch::Impl {
  Impl(Loop::Impl& loop, int fd, Callback on_readable) : loop(loop), fd(fd) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    CheckSystem(epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    loop.callbacks[fd] = std::make_shared<const Callback>(std::move(on_readable));
  }
  ~Impl() {
    epoll_ctl(loop.epoll, EPOLL_CTL_DEL, fd, nullptr);
    loop.callbacks.erase(fd);
  }
  Loop::Impl& loop;
  const int fd;
};

Watch::Watch(Loop& loop, int fd, Callback on_readable)
    : impl_(std::make_unique<Impl>(loop.impl(), fd, std::move(on_readable))) {}
Watch::~Watch() = default;

struct Timer::Impl {
  ~Impl() {
    watch.reset();
    close(fd);
  }
  void Set(std::chrono::nanoseconds after) {
    constexpr int64_t kSecond_ns = 1'000'000'000;
    const itimerspec once = {{}, {after.count() / kSecond_ns, after.count() % kSecond_ns}};
    CheckSystem(timerfd_settime(fd, 0, &once, nullptr), "timerfd_settime");
  }
  const int fd =
      CheckSystem(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create");
  std::unique_ptr<Watch> watch;
};

Timer::Timer(Loop& loop, Callback on_expiry) : impl_(std::make_unique<Impl>()) {
  impl_->watch = std::make_unique<Watch>(loop, impl_->fd, [fd = impl_->fd, on_expiry] {
    uint64_t expirations;
    if (read(fd, &expirations, sizeof expirations) > 0) on_expiry();
  });
}
Timer::~Timer() = default;

// A time of 0 would disarm the timer.
void Timer::Set(std::chrono::nanoseconds after) {
  impl_->Set(std::max(after, std::chrono::nanoseconds(1)));
}
void Timer::Clear() { impl_->Set(std::chrono::nanoseconds(0)); }

}  // namespace shout
