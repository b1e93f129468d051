// A host's devices under /sys and /dev without a mount. The program preloads a library (shim/files)
// that redirects its file calls to copies. docs/filesystem.md describes what the program sees.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::cli {

class PreloadDoor {
 public:
  // Makes a directory for the copies, and starts the process that updates them. Both end with this
  // object, or at the latest with this process. Call this with a single thread. On failure returns
  // the reason, and nothing remains.
  static runtime::OrMessage<PreloadDoor> Make(const std::string& socket_path);

  PreloadDoor(PreloadDoor&& other) noexcept
      : directory_(std::move(other.directory_)),
        life_(std::move(other.life_)),
        server_(std::exchange(other.server_, 0)) {}
  PreloadDoor& operator=(PreloadDoor&&) = delete;
  ~PreloadDoor();

  // The value of kFilesVariable for the program.
  const std::string& directory() const { return directory_; }

 private:
  PreloadDoor(std::string directory, runtime::UniqueFd life, pid_t server)
      : directory_(std::move(directory)), life_(std::move(life)), server_(server) {}
  std::string directory_;
  runtime::UniqueFd life_;  // the server ends when its other end is closed
  pid_t server_;
};

}  // namespace rdmaemu::cli
