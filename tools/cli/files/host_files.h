// The files that a running host shows under /sys and /dev, read through the host's socket.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

class HostFiles final : public FileTree {
 public:
  explicit HostFiles(std::string socket_path) : socket_path_(std::move(socket_path)) {}
  // Returns the file at an absolute path. ENOENT, ENOTDIR, ENAMETOOLONG from the host. EIO in three
  // cases: the host has ended, it does not reply within HostClient::kTimeout, or its reply is not a
  // file.
  Result<HostFile> At(std::string_view path) const override;

 private:
  static constexpr size_t kMaxIdle = 8;

  // Returns a connection that no other thread uses. Opens a new one when all are in use.
  Result<runtime::HostClient> Take() const;

  std::string socket_path_;
  mutable std::mutex mutex_;
  mutable std::vector<runtime::HostClient> idle_;  // at most kMaxIdle
};

}  // namespace rdmaemu::cli
