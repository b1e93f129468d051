// Looks up other processes of the machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

// Returns this process's children that run or that no wait(2) has reaped. Empty without
// CONFIG_PROC_CHILDREN. Thread-safe.
std::vector<pid_t> ChildProcesses();

// Detects which processes run. Not thread-safe.
class ActiveProcesses {
 public:
  // Returns true if one of `processes` runs now, or has run in the last `lately` of the machine's
  // time. A process that was not in the last call counts as having run.
  bool Ran(const std::vector<pid_t>& processes, Duration lately);

 private:
  struct Seen {
    uint64_t run_time_ns = 0;  // of all its threads
    Time at{};                 // the machine's time when it was last seen to run
  };
  std::map<pid_t, Seen> seen_;
};

}  // namespace rdmaemu::embedded
