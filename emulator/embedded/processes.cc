#include "emulator/embedded/processes.h"

#include <fstream>
#include <string>
#include <utility>

#include "emulator/embedded/proc_files.h"
#include "emulator/runtime/clock.h"

namespace rdmaemu::embedded {

std::vector<pid_t> ChildProcesses() {
  std::vector<pid_t> children;
  ForEachThread("self", [&](pid_t thread, const ProcThread&) {
    std::ifstream list("/proc/self/task/" + std::to_string(thread) + "/children");
    for (pid_t child; list >> child;) children.push_back(child);
    return true;
  });
  return children;
}

bool ActiveProcesses::Ran(const std::vector<pid_t>& processes, Duration lately) {
  const Time now = runtime::RealNow();
  std::map<pid_t, Seen> seen;
  bool ran = false;
  for (const pid_t process : processes) {
    uint64_t run_time_ns = 0;
    bool runs = false;
    ForEachThread(std::to_string(process), [&](pid_t, const ProcThread& thread) {
      const char state = thread.State();
      runs |= state == 'R' || state == 'D';
      run_time_ns += thread.RunTime_ns();
      return true;
    });
    const auto before = seen_.find(process);
    const bool is_same =
        before != seen_.end() && !runs && before->second.run_time_ns == run_time_ns;
    const Time at = is_same ? before->second.at : now;
    seen.emplace(process, Seen{run_time_ns, at});
    ran |= now - at < lately;
  }
  seen_ = std::move(seen);
  return ran;
}

}  // namespace rdmaemu::embedded
