// The state of another process, from proc(5).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace rdmaemu::runtime {

struct ProcessState {
  uint64_t begun;   // in ticks since boot
  bool is_stopped;  // by a signal such as SIGSTOP
};

// Returns nullopt if the process has ended.
std::optional<ProcessState> StateOf(pid_t process);

}  // namespace rdmaemu::runtime
