// What a process has mapped, from the text of /proc/PID/maps (proc(5)).
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/base/memory.h"

namespace rdmaemu::runtime {

// Follows mappings in ascending order and tells whether they cover a range without a gap.
class CoverageCheck {
 public:
  // `write`: mappings must be writable, not only readable.
  CoverageCheck(MemoryRange range, bool write);

  // Takes one line of maps; false when no later line can change the answer.
  bool AddLine(std::string_view line);
  bool covered() const { return next_ >= end_; }

 private:
  uint64_t next_;  // first byte not yet covered
  uint64_t end_;
  bool write_;
};

// True when /proc/<pid>/maps shows every byte of the range as readable, or writable if `write`.
// False also where the file may not be read (another user's process, a dead one).
bool IsMapped(int pid, MemoryRange range, bool write);

}  // namespace rdmaemu::runtime
