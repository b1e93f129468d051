// Checks the mappings of a process by the text of /proc/PID/maps (proc(5)).
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/base/memory.h"

namespace rdmaemu::runtime {

// Takes mappings in ascending order and checks whether they cover a range without a gap.
class CoverageCheck {
 public:
  // With `write`, mappings must be writable as well as readable.
  CoverageCheck(MemoryRange range, bool write);

  // Takes one line of maps. Returns false if no later line can change the result.
  bool AddLine(std::string_view line);
  bool covered() const { return next_ >= end_; }

 private:
  uint64_t next_;  // first byte not yet covered
  uint64_t end_;
  bool write_;
};

// Returns true if /proc/<pid>/maps shows every byte of the range as readable, and writable if
// `write`. Returns false if the file cannot be read (another user's process, a dead process).
bool IsMapped(int pid, MemoryRange range, bool write);

}  // namespace rdmaemu::runtime
