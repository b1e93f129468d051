// Helpers for tests of programs in the hosts' time.
#pragma once

#include <poll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

inline nanoseconds HostNow() { return nanoseconds(rdmaemu_now()); }

inline nanoseconds Of(const timespec& time) {
  return seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}
inline timespec In(nanoseconds time) {
  return {static_cast<time_t>(time / seconds(1)), static_cast<long>((time % seconds(1)).count())};
}
inline nanoseconds Read(clockid_t clock) {
  timespec now{};
  EXPECT_EQ(clock_gettime(clock, &now), 0);
  return Of(now);
}

inline rdmaemu_options Options(const char* clock) {
  rdmaemu_options options{};
  options.size = sizeof options;
  options.clock = clock;
  options.program_time = 1;
  return options;
}

class ProgramTimeTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  ProgramTimeTest() : EmbeddedTest({.program_time = true}) {}

  // Calls `body` and returns the time that it took by the program's clock.
  template <class Body>
  nanoseconds Took(Body&& body) {
    const nanoseconds before = Read(CLOCK_MONOTONIC);
    body();
    return Read(CLOCK_MONOTONIC) - before;
  }
};

class Timerfd {
 public:
  explicit Timerfd(clockid_t clock = CLOCK_MONOTONIC, int flags = TFD_CLOEXEC)
      : fd_(timerfd_create(clock, flags)) {
    EXPECT_GE(fd_, 0) << strerror(errno);
  }
  ~Timerfd() { close(fd_); }
  Timerfd(const Timerfd&) = delete;
  Timerfd& operator=(const Timerfd&) = delete;

  void Set(nanoseconds first, nanoseconds interval = {}, int flags = 0) {
    const itimerspec setting{In(interval), In(first)};
    ASSERT_EQ(timerfd_settime(fd_, flags, &setting, nullptr), 0) << strerror(errno);
  }
  // Waits, and returns the number of expirations.
  uint64_t Read() {
    uint64_t times = 0;
    EXPECT_EQ(read(fd_, &times, sizeof times), ssize_t{sizeof times}) << strerror(errno);
    return times;
  }
  bool IsReadable() const {
    pollfd in{fd_, POLLIN, 0};
    return poll(&in, 1, 0) == 1;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace rdmaemu_test
