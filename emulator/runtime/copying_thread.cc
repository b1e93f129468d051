#include "emulator/runtime/copying_thread.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

}  // namespace

bool MayCopy(pid_t thread) {
  if (thread <= 0) return false;
  const std::string state = FileOf(thread, "stat");
  // The name may contain any characters, so the state follows its last ')'.
  const size_t name_end = state.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= state.size()) return false;
  // A signal stops a thread only on its way back from the kernel.
  if (std::strchr("TZX", state[name_end + 2]) != nullptr) return false;
  const std::string call = FileOf(thread, "syscall");
  char* end = nullptr;
  const long number = std::strtol(call.c_str(), &end, 10);
  const bool runs = end == call.c_str();  // "running"
  return runs || number == SYS_process_vm_readv || number == SYS_process_vm_writev;
}

}  // namespace rdmaemu::runtime
