// Reads files of proc(5) about the threads of a process.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::embedded {

// The first bytes of a file. Empty if the file does not exist.
struct ProcFile {
  explicit ProcFile(const std::string& path) {
    const runtime::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t bytes = file ? pread(file.get(), text, sizeof text - 1, 0) : 0;
    text[std::max<ssize_t>(bytes, 0)] = '\0';
  }
  char text[256];
};

// One thread of a process, named by the path of its directory.
class ProcThread {
 public:
  explicit ProcThread(std::string path) : path_(std::move(path)) {}
  ProcFile Read(const char* name) const { return ProcFile(path_ + name); }
  // Returns the state in stat, or 'X' for a thread that has ended. In stat, the state is behind the
  // thread's name, which may contain any characters.
  char State() const {
    const ProcFile stat = Read("stat");
    if (stat.text[0] == '\0') return 'X';
    const char* const name_end = strrchr(stat.text, ')');
    return name_end == nullptr || name_end[1] == '\0' ? 'R' : name_end[2];
  }
  // Returns true if the thread sleeps in the kernel or has ended. A thread can show the state 'S'
  // before it sleeps. For example, wait4(2) sets that state and then checks the children. The file
  // `syscall` shows the difference if the kernel has this file.
  bool Sleeps() const {
    const char state = State();
    if (state == 'Z' || state == 'X') return true;
    return state == 'S' && strncmp(Read("syscall").text, "running", strlen("running")) != 0;
  }
  // Returns the thread's run time. Returns 0 without CONFIG_SCHED_INFO.
  uint64_t RunTime_ns() const { return strtoull(Read("schedstat").text, nullptr, 10); }

 private:
  std::string path_;
};

// Calls `visit` for each thread of `process` (a pid or "self") until `visit` returns false. The
// arguments are the thread's id and its ProcThread. Returns false without /proc, or if `visit` did.
template <class Visit>
bool ForEachThread(const std::string& process, const Visit& visit) {
  const std::string path = "/proc/" + process + "/task/";
  DIR* const all = opendir(path.c_str());
  if (all == nullptr) return false;
  bool goes_on = true;
  while (const dirent* const each = goes_on ? readdir(all) : nullptr) {
    const pid_t thread = atoi(each->d_name);
    if (thread > 0) goes_on = visit(thread, ProcThread(path + each->d_name + "/"));
  }
  closedir(all);
  return goes_on;
}

}  // namespace rdmaemu::embedded
