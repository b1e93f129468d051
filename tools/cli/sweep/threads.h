// Describes the threads of processes, and their waits.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rdmaemu::cli {

// Returns a line for each thread of the processes, except those of rdmaemu: process, thread, name,
// and what the kernel says about the wait (/proc/PID/task/TID/wchan). If gdb is installed, lines
// with the threads' stacks follow, which takes up to kStacksWithin_s seconds for each process.
inline constexpr int kStacksWithin_s = 5;
std::vector<std::string> WaitingThreads(const std::vector<pid_t>& processes);

}  // namespace rdmaemu::cli
