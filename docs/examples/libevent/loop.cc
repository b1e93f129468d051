// Implements the service's event loop (../epoll/loop.h) on libevent.
#include "loop.h"

#include <event2/event.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

namespace shout {
namespace {

constexpr int64_t kMicrosecond_ns = 1'000, kSecond_us = 1'000'000;

event* CheckEvent(event* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

struct Loop::Impl {
  Impl() : base(event_base_new()) {
    if (base == nullptr) throw std::bad_alloc();
  }
  ~Impl() { event_base_free(base); }

  // Runs a callback from libevent and makes RunOnce return afterwards. No exception may cross
  // libevent, because libevent is C.
  void Call(const Callback& callback) {
    event_base_loopbreak(base);
    try {
      callback();
    } catch (...) {
      thrown = std::current_exception();
    }
  }

  event_base* const base;
  std::exception_ptr thrown;
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

void Loop::RunOnce() {
  if (event_base_dispatch(impl_->base) < 0) throw std::runtime_error("event_base_dispatch failed");
  if (impl_->thrown) std::rethrow_exception(std::exchange(impl_->thrown, nullptr));
}

// An event of libevent with its callback. The callback survives the destruction of the event.
struct LoopEvent {
  LoopEvent(Loop::Impl& loop, int fd, short what, Callback callback)
      : loop(loop),
        callback(std::make_shared<const Callback>(std::move(callback))),
        registered(CheckEvent(event_new(loop.base, fd, what, &LoopEvent::OnEvent, this))) {}
  ~LoopEvent() { event_free(registered); }

  static void OnEvent(evutil_socket_t, short, void* self) {
    LoopEvent& event = *static_cast<LoopEvent*>(self);
    const auto callback = event.callback;
    event.loop.Call(*callback);
  }

  Loop::Impl& loop;
  const std::shared_ptr<const Callback> callback;
  event* const registered;
};

struct Watch::Impl : LoopEvent {
  using LoopEvent::LoopEvent;
};

Watch::Watch(Loop& loop, int fd, Callback on_readable)
    : impl_(std::make_unique<Impl>(loop.impl(), fd, EV_READ | EV_PERSIST, std::move(on_readable))) {
  if (event_add(impl_->registered, nullptr) != 0) throw std::runtime_error("event_add failed");
}
Watch::~Watch() = default;

struct Timer::Impl : LoopEvent {
  using LoopEvent::LoopEvent;
};

Timer::Timer(Loop& loop, Callback on_expiry)
    : impl_(std::make_unique<Impl>(loop.impl(), -1, 0, std::move(on_expiry))) {}
Timer::~Timer() = default;

void Timer::Set(std::chrono::nanoseconds after) {
  const int64_t time_us =
      (std::max<int64_t>(after.count(), 0) + kMicrosecond_ns - 1) / kMicrosecond_ns;
  const timeval time = {time_us / kSecond_us, time_us % kSecond_us};
  if (evtimer_add(impl_->registered, &time) != 0) throw std::runtime_error("evtimer_add failed");
}
void Timer::Clear() { evtimer_del(impl_->registered); }

}  // namespace shout
