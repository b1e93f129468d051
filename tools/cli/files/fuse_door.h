// A host's files as a FUSE file system (libfuse3).
#pragma once

#include "tools/cli/files/host_files.h"

namespace rdmaemu::cli {

// Serves a mount whose /dev/fuse is `fuse_fd` until it is unmounted. Takes the descriptor. The
// files belong to this process's user. Returns false when libfuse refuses.
bool ServeFuse(int fuse_fd, const HostFiles& files);

}  // namespace rdmaemu::cli
