// A tree of files as a FUSE file system (libfuse3).
#pragma once

#include <functional>
#include <string>

#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

// Serves a mount whose /dev/fuse is `fuse_fd` until it is unmounted. Takes ownership of the
// descriptor. The files belong to this process's user. Returns false when libfuse refuses.
bool ServeFuse(int fuse_fd, FileTree& files);

// The source of the mounts that MountFuse makes, in /proc/mounts. Their type is fuse.rdmaemu.
inline constexpr const char* kMountSource = "rdmaemu-hosts";

// Mounts the tree on a directory, calls `mounted`, and serves the mount with several threads. Stops
// when the mount is removed, or at SIGTERM, SIGINT or SIGHUP, and then unmounts. Only this
// process's user has access. Returns the failure, or an empty text.
std::string MountFuse(const std::string& directory, FileTree& files,
                      const std::function<void()>& mounted);

}  // namespace rdmaemu::cli
