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
// not access the files, because the process that serves them may have ended.
std::vector<MountPoint> MountsOfHosts();
// Returns the topmost mount on the directory if `rdmaemu mount` made it.
std::optional<MountPoint> MountOn(const std::string& directory);

// Returns the absolute path without links. The directory itself may be a mount that no process
// serves.
std::string AbsoluteDirectory(const std::string& directory);

// Removes the mount. `is_lazy`: also while it is in use. New users then no longer see it. Calls
// fusermount3 if this user must not unmount. Returns the failure, or an empty text.
std::string RemoveMount(const std::string& directory, bool is_lazy);

// Removes the mount when this process ends without doing so, even by SIGKILL. A child process waits
// for that end. Make the guard before the FUSE session and with a single thread.
class MountGuard {
 public:
  // `directory` must have no mount of `rdmaemu mount` yet. At the end the child removes any such
  // mount.
  explicit MountGuard(const std::string& directory);
  // After this call, the child removes only the mount of this device.
  void Report(const std::string& device);
  // After this call, the child removes no mount. Call it when there is no mount, or no mount any
  // more: the next mount on the directory may get the same device.
  void Release() { Report("none"); }

 private:
  runtime::UniqueFd pipe_;  // the child reads it until this process ends
};

}  // namespace rdmaemu::cli
