#include "emulator/embedded/inner_fds.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace rdmaemu::embedded {
namespace {

constexpr int kMaxEpollsInEpolls = 5;  // the kernel's EP_MAX_NESTS + 1

std::string_view LinkOf(int fd, std::array<char, 64>& text) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t bytes = readlink(path.c_str(), text.data(), text.size());
  return {text.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes)};
}

bool IsInner(int fd, int depth) {
  std::array<char, 64> text;
  const std::string_view link = LinkOf(fd, text);
  if (link == "anon_inode:[eventfd]") return true;
  const bool is_timer = link == "anon_inode:[timerfd]", is_epoll = link == "anon_inode:[eventpoll]";
  if (!is_timer && !(is_epoll && depth < kMaxEpollsInEpolls)) return false;
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(info, line);) {
    int watched = -1;
    if (is_timer && line.rfind("it_value:", 0) == 0) return line == "it_value: (0, 0)";
    if (is_epoll && std::sscanf(line.c_str(), "tfd: %d", &watched) == 1 &&
        !IsInner(watched, depth + 1)) {
      return false;
    }
  }
  return is_epoll;
}

}  // namespace

bool IsInnerFd(int fd) { return IsInner(fd, 0); }

}  // namespace rdmaemu::embedded
