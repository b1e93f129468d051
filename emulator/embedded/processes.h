// Processes of the machine beside this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

// Returns this process's children that live or were not waited for. Empty without
// CONFIG_PROC_CHILDREN. Thread-safe.
std::vector<pid_t> ChildProcesses();

// Tells which processes do something. Not thread-safe.
class ActiveProcesses {
 public:
  // Returns true if one of `processes` runs now, or has run in the last `lately` of the machine's
  // time. A process that the last call did not name counts as having run.
  bool Ran(const std::vector<pid_t>& processes, Duration lately);

 private:
  struct Seen {
    uint64_t run_time_ns = 0;  // of all its threads
    Time at{};                 // the machine's time when it had just run
  };
  std::map<pid_t, Seen> seen_;
};

}  // namespace rdmaemu::embedded
