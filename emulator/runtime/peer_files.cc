#include "emulator/runtime/peer_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

namespace rdmaemu::runtime {
namespace {

// Returns true for an eventfd that the library has marked as a counter (shim/client/counters.cc).
bool IsCounter(int fd) {
  std::array<char, 64> target;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  return length > 0 &&
         std::string_view(target.data(), static_cast<size_t>(length)) == "anon_inode:[eventfd]" &&
         fcntl(fd, F_GETSIG) == SIGIO;
}

}  // namespace

UniqueFd OpenOf(uint32_t pid, uint32_t fd, int flags) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  return UniqueFd(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

UniqueFd DuplicateCounterOf(uint32_t pid, int fd) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return {};
  UniqueFd counter(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
  if (counter && !IsCounter(counter.get())) counter.Reset();
  return counter;
}

}  // namespace rdmaemu::runtime
