// Replaces poll(2), select(2), epoll_wait(2) and their variants.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <vector>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

int DrivePoll(pollfd* fds, nfds_t count, std::optional<Duration> limit, const sigset_t* mask) {
  const KeepsErrno keeps;
  const auto look = [&](const timespec* timeout) {
    return Libc().ppoll(fds, count, timeout, mask);
  };
  // Let the kernel check the arguments before any code here reads them.
  const timespec at_once = {0, 0};
  ProcessHost::Get().Look(/*found_nothing=*/false);
  if (const int found = look(&at_once); found != 0) return keeps.Answer(found);
  // The copy protects the program's `revents`. The kernel reads 32 bits of the count.
  std::vector<pollfd> copy(fds, fds + static_cast<uint32_t>(count));
  return keeps.Answer(DriveUntilReady(
      {.fds = copy, .mask = mask, .is_foreign = true, .what = "poll"}, limit, look));
}

int DriveEpoll(int epoll, epoll_event* events, int size, std::optional<Duration> limit,
               const sigset_t* mask) {
  const KeepsErrno keeps;
  pollfd whole{epoll, POLLIN, 0};
  return keeps.Answer(DriveUntilReady(
      {.fds = {&whole, 1}, .mask = mask, .is_foreign = true, .what = "epoll_wait"}, limit,
      [&](const timespec* timeout) {
        const int timeout_ms =
            timeout == nullptr
                ? -1
                : static_cast<int>(std::min<int64_t>(
                      INT_MAX, timeout->tv_sec * 1000 + timeout->tv_nsec / 1'000'000));
        return Libc().epoll_pwait(epoll, events, size, timeout_ms, mask);
      }));
}

struct Sets {
  fd_set* sets[3];  // to read, to write, exceptions
  static constexpr short kEvents[3] = {POLLIN, POLLOUT, POLLPRI};

  std::vector<pollfd> AsPollfds(int count) const {
    std::vector<pollfd> fds;
    for (int fd = 0; fd < count; fd++) {
      short events = 0;
      for (int i = 0; i < 3; i++) {
        if (sets[i] != nullptr && FD_ISSET(fd, sets[i])) events |= kEvents[i];
      }
      if (events != 0) fds.push_back({fd, events, 0});
    }
    return fds;
  }
};

int DriveSelect(int count, const Sets& sets, std::optional<Duration> limit, const sigset_t* mask) {
  const KeepsErrno keeps;
  std::vector<pollfd> fds = sets.AsPollfds(count);
  // select(2) clears the sets when it finds nothing, so each call gets copies.
  return keeps.Answer(DriveUntilReady(
      {.fds = fds, .mask = mask, .is_foreign = true, .what = "select"}, limit,
      [&](const timespec* timeout) {
        fd_set copies[3];
        fd_set* asked[3];
        for (int i = 0; i < 3; i++) {
          asked[i] = sets.sets[i] == nullptr ? nullptr : &copies[i];
          if (asked[i] != nullptr) copies[i] = *sets.sets[i];
        }
        const int found = Libc().pselect(count, asked[0], asked[1], asked[2], timeout, mask);
        for (int i = 0; found > 0 && i < 3; i++) {
          if (asked[i] != nullptr) *sets.sets[i] = copies[i];
        }
        return found;
      }));
}

void Empty(const Sets& sets, int count) {
  for (fd_set* set : sets.sets) {
    for (int fd = 0; set != nullptr && fd < count; fd++) FD_CLR(fd, set);
  }
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

RDMAEMU_WAIT int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (!DrivesHosts()) return Libc().poll(fds, count, timeout_ms);
  return DrivePoll(fds, count, FromMilliseconds(timeout_ms), nullptr);
}

RDMAEMU_WAIT int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!DrivesHosts() || (timeout != nullptr && !IsValid(*timeout))) {
    return Libc().ppoll(fds, count, timeout, mask);
  }
  return DrivePoll(fds, count, timeout ? std::optional(ToDuration(*timeout)) : std::nullopt, mask);
}

// The functions of _FORTIFY_SOURCE. The C library's own versions would abort the program.
RDMAEMU_WAIT int __poll_chk(pollfd* fds, nfds_t count, int timeout_ms, size_t bytes) {
  if (bytes / sizeof *fds < count) __builtin_trap();
  return poll(fds, count, timeout_ms);
}
RDMAEMU_WAIT int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout,
                             const sigset_t* mask, size_t bytes) {
  if (bytes / sizeof *fds < count) __builtin_trap();
  return ppoll(fds, count, timeout, mask);
}

// A program may use larger sets than those of the headers. Only the C library can handle them.
RDMAEMU_WAIT int select(int count, fd_set* in, fd_set* out, fd_set* except, timeval* timeout) {
  if (!DrivesHosts() || count < 0 || count > FD_SETSIZE ||
      (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0))) {
    return Libc().select(count, in, out, except, timeout);
  }
  std::optional<Duration> limit;
  if (timeout != nullptr) {
    limit = ToDuration({timeout->tv_sec, 0}) + std::chrono::microseconds(timeout->tv_usec);
  }
  const Sets sets{{in, out, except}};
  const Time began = WaitNow();
  const int found = DriveSelect(count, sets, limit, nullptr);
  if (found == 0) Empty(sets, count);
  if (timeout != nullptr) {  // Linux returns the remaining time
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
        std::max(Duration::zero(), *limit - (WaitNow() - began)));
    timeout->tv_sec = static_cast<time_t>(left.count() / 1'000'000);
    timeout->tv_usec = static_cast<suseconds_t>(left.count() % 1'000'000);
  }
  return found;
}

RDMAEMU_WAIT int pselect(int count, fd_set* in, fd_set* out, fd_set* except,
                         const timespec* timeout, const sigset_t* mask) {
  if (!DrivesHosts() || count < 0 || count > FD_SETSIZE ||
      (timeout != nullptr && !IsValid(*timeout))) {
    return Libc().pselect(count, in, out, except, timeout, mask);
  }
  const Sets sets{{in, out, except}};
  const int found =
      DriveSelect(count, sets, timeout ? std::optional(ToDuration(*timeout)) : std::nullopt, mask);
  if (found == 0) Empty(sets, count);
  return found;
}

RDMAEMU_WAIT int epoll_wait(int epoll, epoll_event* events, int size, int timeout_ms) {
  if (!DrivesHosts()) return Libc().epoll_wait(epoll, events, size, timeout_ms);
  return DriveEpoll(epoll, events, size, FromMilliseconds(timeout_ms), nullptr);
}

RDMAEMU_WAIT int epoll_pwait(int epoll, epoll_event* events, int size, int timeout_ms,
                             const sigset_t* mask) {
  if (!DrivesHosts()) return Libc().epoll_pwait(epoll, events, size, timeout_ms, mask);
  return DriveEpoll(epoll, events, size, FromMilliseconds(timeout_ms), mask);
}

RDMAEMU_WAIT int epoll_pwait2(int epoll, epoll_event* events, int size, const timespec* timeout,
                              const sigset_t* mask) {
  if (!DrivesHosts() || (timeout != nullptr && !IsValid(*timeout))) {
    if (Libc().epoll_pwait2 != nullptr) {
      return Libc().epoll_pwait2(epoll, events, size, timeout, mask);
    }
    errno = ENOSYS;
    return -1;
  }
  return DriveEpoll(epoll, events, size,
                    timeout ? std::optional(ToDuration(*timeout)) : std::nullopt, mask);
}
