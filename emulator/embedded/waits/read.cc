// Replaces read(2) and eventfd_read(3): a blocking read of an event channel, a completion channel
// or a timerfd.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// Returns true for an event channel, a completion channel or a timer. The kernel handles all other
// descriptors.
bool IsCounter(int fd) {
  char path[32], kind[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(path, kind, sizeof kind);
  const std::string_view name(kind, length < 0 ? 0 : static_cast<size_t>(length));
  return name == "anon_inode:[eventfd]" || name == "anon_inode:[timerfd]";
}

// Runs the hosts until the descriptor is readable. Returns false for EINTR.
bool AwaitReadable(int fd) {
  ProcessHost& hosts = ProcessHost::Get();
  hosts.Look(/*found_nothing=*/false);
  pollfd readable{fd, POLLIN, 0};
  // poll(2) reports files and invalid descriptors as ready, too.
  if (CountReady({&readable, 1}) != 0 || !IsCounter(fd)) return true;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) != 0) return true;
  return hosts.DriveWait({.fds = {&readable, 1}, .is_foreign = true, .what = "read"},
                         std::nullopt) != ProcessHost::WaitEnd::kInterrupted;
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu::embedded;

RDMAEMU_WAIT ssize_t read(int fd, void* bytes, size_t size) {
  constexpr size_t kCounterBytes = sizeof(uint64_t);
  if (DrivesHosts() && size >= kCounterBytes) {
    const int before = errno;
    if (!AwaitReadable(fd)) {
      errno = EINTR;
      return -1;
    }
    errno = before;
  }
  return Libc().read(fd, bytes, size);
}

// The function of _FORTIFY_SOURCE. The C library's own version would abort the program.
RDMAEMU_WAIT ssize_t __read_chk(int fd, void* bytes, size_t size, size_t room) {
  if (size > room) __builtin_trap();
  return read(fd, bytes, size);
}

RDMAEMU_WAIT int eventfd_read(int fd, eventfd_t* value) {
  return read(fd, value, sizeof *value) == sizeof *value ? 0 : -1;
}
