// An event loop of one thread. loop.cc implements it on epoll; another file may implement it on a
// library.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace shout {

using Callback = std::function<void()>;
using std::chrono::milliseconds;

class Loop {
 public:
  Loop();
  ~Loop();
  // Waits until something happens, and calls the callbacks that are due. Throws what they throw.
  void RunOnce();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// While the object lives, the loop calls `on_readable` whenever the descriptor is readable. Any
// callback may destroy any watch or timer, its own too.
class Watch {
 public:
  Watch(Loop& loop, int fd, Callback on_readable);
  ~Watch();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The loop calls `on_expiry` once after each Set. Set replaces the earlier time.
class Timer {
 public:
  Timer(Loop& loop, Callback on_expiry);
  ~Timer();
  void Set(std::chrono::nanoseconds after);
  void Clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shout
