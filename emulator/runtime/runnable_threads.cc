#include "emulator/runtime/runnable_threads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace rdmaemu::runtime {

uint32_t ParseRunnable(std::string_view loadavg) {
  const size_t slash = loadavg.find('/');
  const size_t space = slash == loadavg.npos ? slash : loadavg.rfind(' ', slash);
  if (space == loadavg.npos) return 0;
  uint32_t count = 0;
  const char* const end = loadavg.data() + slash;
  const auto parsed = std::from_chars(loadavg.data() + space + 1, end, count);
  return parsed.ptr == end && parsed.ec == std::errc() ? count : 0;
}

RunnableThreads::RunnableThreads()
    : file_(open("/proc/loadavg", O_RDONLY | O_CLOEXEC)),
      processors_(static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)))) {}

uint32_t RunnableThreads::Count() const {
  std::array<char, 128> bytes;
  const ssize_t size = file_ ? pread(file_.get(), bytes.data(), bytes.size(), 0) : -1;
  return size < 0 ? 0 : ParseRunnable({bytes.data(), static_cast<size_t>(size)});
}

}  // namespace rdmaemu::runtime
