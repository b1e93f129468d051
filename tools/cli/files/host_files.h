// The files that a running host shows under /sys and /dev, read through the host's socket.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

class HostFiles final : public FileTree {
 public:
  explicit HostFiles(std::string socket_path) : socket_path_(std::move(socket_path)) {}
  // Returns the file at an absolute path. Makes a connection of its own. ENOENT, ENOTDIR,
  // ENAMETOOLONG from the host. EIO when the host has ended, does not answer within
  // HostClient::kTimeout, or answers something else than a file.
  Result<HostFile> At(std::string_view path) const override;

 private:
  std::string socket_path_;
};

}  // namespace rdmaemu::cli
