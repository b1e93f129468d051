#include "emulator/runtime/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

std::optional<ProcessState> StateOf(pid_t thread) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", thread);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  const ssize_t bytes = pread(file.get(), text, sizeof text - 1, 0);
  if (bytes <= 0) return std::nullopt;
  text[bytes] = '\0';
  // The name may contain any characters, so fields are counted after its last ')'.
  const char* at = strrchr(text, ')');
  if (at == nullptr) return std::nullopt;
  std::istringstream fields(at + 1);
  ProcessState found{};
  std::string skipped;
  constexpr int kBetweenStateAndThreads = 16;
  fields >> found.state;
  for (int i = 0; i < kBetweenStateAndThreads; i++) fields >> skipped;
  int threads = 0;
  if (!(fields >> threads >> skipped >> found.begun)) return std::nullopt;
  // The first thread may end before the other threads.
  if (found.has_ended() && threads <= 1) return std::nullopt;
  return found;
}

}  // namespace rdmaemu::runtime
