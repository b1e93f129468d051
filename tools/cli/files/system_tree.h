// /sys/class, /sys/devices/virtual and /dev with the entries of the machine and of a host, made of
// bind mounts.
#pragma once

#include <string>
#include <utility>

namespace rdmaemu::cli {

// Works in a mount namespace of this process alone. Each function returns its failure, or an empty
// text.
class SystemTree {
 public:
  // `scratch`: a directory that may be covered while the tree is made.
  explicit SystemTree(std::string scratch) : scratch_(std::move(scratch)) {}
  // Mounts the FUSE file system of a host's files (HostFiles) on the descriptor of /dev/fuse.
  std::string MountFuse(int fuse_fd);
  // Makes the directories and mounts them at their places. The FUSE file system must be served
  // already.
  std::string Show();

 private:
  // Makes a directory of classes in `made` and mounts it at `machine`.
  std::string ShowClasses(const std::string& machine, const std::string& made);
  std::string ShowNodes();
  // The path of one of our entries, such as "/dev/infiniband", in the FUSE file system.
  std::string Ours(const std::string& path) const { return scratch_ + "/fuse" + path; }

  std::string scratch_;
};

}  // namespace rdmaemu::cli
