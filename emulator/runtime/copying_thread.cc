#include "emulator/runtime/copying_thread.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/runtime/process_state.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {
namespace {

// Returns the beginning of /proc/THREAD/NAME, or "" if it cannot be read.
std::string FileOf(pid_t thread, const char* name) {
  char path[48], text[512];
  snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  const ssize_t bytes = read(file.get(), text, sizeof text);
  return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : "";
}

// The functions of the kernel in which a thread waits that a signal or a freezer has stopped. A
// thread comes there only on its way back to the program.
constexpr std::array<std::string_view, 4> kWaysBack = {"get_signal", "do_signal_stop",
                                                       "do_freezer_trap", "__refrigerator"};

}  // namespace

CopyState CopyStateOf(pid_t thread) {
  const std::optional<ProcessState> state = StateOf(thread);
  // A signal stops a thread only on its way back, too.
  if (!state || state->has_ended() || state->is_stopped()) return CopyState::kElsewhere;
  if (std::ranges::find(kWaysBack, FileOf(thread, "wchan")) != kWaysBack.end()) {
    return CopyState::kElsewhere;
  }
  // The number of the system call stays until the thread is back in the program.
  const std::string call = FileOf(thread, "syscall");
  char* end = nullptr;
  const long number = std::strtol(call.c_str(), &end, 10);
  const bool runs = end == call.c_str();  // "running"
  if (!runs && number != SYS_process_vm_readv && number != SYS_process_vm_writev) {
    return CopyState::kElsewhere;
  }
  return state->is_traced() ? CopyState::kTraced : CopyState::kMayCopy;
}

}  // namespace rdmaemu::runtime
