// The mounts of `rdmaemu mount`: finds and removes them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::cli {

struct MountPoint {
  std::string directory;
  std::string device;  // "0:52" of /proc/self/mountinfo, which differs for each mounted file system
};

// Returns the mounts of this namespace that `rdmaemu mount` made, in the order of mounting. Does
// not touch the files, because the process that serves them may have ended.
std::vector<MountPoint> MountsOfHosts();
// Returns the topmost mount on the directory if `rdmaemu mount` made it.
std::optional<MountPoint> MountOn(const std::string& directory);

// Returns the absolute path without links. The directory itself may be a mount that no process
// serves any more.
std::string AbsoluteDirectory(const std::string& directory);

// Removes the mount. `is_lazy`: also while it is in use; it disappears for new users. Asks
// fusermount3 where this user must not unmount. Returns what failed, or an empty text.
std::string RemoveMount(const std::string& directory, bool is_lazy);

// Removes the mount when this process ends without doing so, by SIGKILL too. A child process waits
// for that. Make it before the FUSE session and with a single thread.
class MountGuard {
 public:
  // `directory` has no mount of `rdmaemu mount` yet. The child removes any that it has at the end.
  explicit MountGuard(const std::string& directory);
  // Once this was called, the child removes the mount of this device only. "none": no mount.
  void Report(const std::string& device);

 private:
  runtime::UniqueFd pipe_;  // the child reads it until this process ends
};

}  // namespace rdmaemu::cli
