#include "emulator/runtime/memory_maps.h"

#include <fcntl.h>

#include <charconv>
#include <cstring>
#include <string>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {
namespace {

constexpr size_t kReadBytes = 32768;  // about 300 mappings per read

}  // namespace

CoverageCheck::CoverageCheck(MemoryRange range, bool write)
    : next_(range.address), end_(range.address + range.length), write_(write) {
  if (end_ < next_) {  // the range wraps around: no mapping can cover it
    next_ = 0;
    end_ = UINT64_MAX;
  }
}

bool CoverageCheck::AddLine(std::string_view line) {
  // 7f0000000000-7f0000001000 rw-p ...
  uint64_t first = 0, last = 0;
  const char* const end = line.data() + line.size();
  const auto [dash, error] = std::from_chars(line.data(), end, first, 16);
  if (error != std::errc() || dash == end || *dash != '-') return true;
  const auto [space, error2] = std::from_chars(dash + 1, end, last, 16);
  if (error2 != std::errc() || end - space < 4) return true;
  if (last <= next_) return true;
  if (first > next_) return false;  // a gap
  const bool readable = space[1] == 'r', writable = space[2] == 'w';
  if (!readable || (write_ && !writable)) return false;
  next_ = last;
  return !covered();
}

bool IsMapped(int pid, MemoryRange range, bool write) {
  CoverageCheck check(range, write);
  if (check.covered()) return true;
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  std::string buffer(kReadBytes, '\0');
  size_t kept = 0;
  for (;;) {
    const ssize_t got = read(fd.get(), buffer.data() + kept, buffer.size() - kept);
    if (got <= 0) return check.covered();
    std::string_view text(buffer.data(), kept + static_cast<size_t>(got));
    for (size_t newline; (newline = text.find('\n')) != text.npos;) {
      if (!check.AddLine(text.substr(0, newline))) return check.covered();
      text.remove_prefix(newline + 1);
    }
    kept = text.size();
    if (kept == buffer.size()) return false;  // no line is that long
    std::memmove(buffer.data(), text.data(), kept);
  }
}

}  // namespace rdmaemu::runtime
