#include "emulator/runtime/peer_files.h"

#include <fcntl.h>

#include <string>

namespace rdmaemu::runtime {

UniqueFd OpenOf(uint32_t pid, uint32_t fd, int flags) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  return UniqueFd(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

}  // namespace rdmaemu::runtime
