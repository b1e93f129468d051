// The state of another process or thread, from proc(5).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace rdmaemu::runtime {

struct ProcessState {
  uint64_t begun;  // in ticks since boot
  char state;      // as in proc(5)

  bool is_ready() const { return state == 'R'; }    // it runs, or waits for a processor
  bool is_stopped() const { return state == 'T'; }  // by a signal such as SIGSTOP
  bool is_traced() const { return state == 't'; }   // and a tracer has stopped it
  bool has_ended() const { return state == 'Z' || state == 'X'; }
};

// `thread` is a thread, or a process, which means its first thread. Returns nullopt if the process
// has ended.
std::optional<ProcessState> StateOf(pid_t thread);

}  // namespace rdmaemu::runtime
