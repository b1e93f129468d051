// Shows a host's devices under /sys and /dev to a program of `rdmaemu run` (docs/filesystem.md).
#pragma once

#include <optional>
#include <string>

#include "emulator/runtime/registry.h"
#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/files/mount_namespace.h"
#include "tools/cli/files/preload_door.h"

namespace rdmaemu::cli {

class DeviceFiles {
 public:
  // Opens a door to the files of the host with this socket. kAuto uses FUSE, else the preload
  // library, else no door. Call it with a single thread. On failure returns the reason.
  static runtime::OrMessage<DeviceFiles> Open(SysfsDoor door, const std::string& socket_path);

  // Returns the changes to the program's environment. An empty value unsets the variable.
  Environment environment() const;
  // Call this in the program's process before it is executed. Returns 0 or an errno.
  int Enter() const { return mounts_ ? mounts_->Join() : 0; }

 private:
  std::optional<MountNamespace> mounts_;
  std::optional<PreloadDoor> copies_;
  std::string library_;  // preloaded by the program, with copies_
};

}  // namespace rdmaemu::cli
