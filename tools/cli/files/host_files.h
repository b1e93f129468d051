// The files that a running host shows under /sys and /dev, read through the host's socket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/base/result.h"

namespace rdmaemu::cli {

struct HostFile {
  FileKind kind;
  uint32_t mode;          // permission bits
  uint32_t major, minor;  // of a character device
  int read_error;         // positive errno of reading a text file, or 0
  std::string text;       // of a text file, or a link's target
  std::vector<std::pair<std::string, FileKind>> entries;  // of a directory
};

class HostFiles {
 public:
  explicit HostFiles(std::string socket_path) : socket_path_(std::move(socket_path)) {}
  // Returns the file at an absolute path. Makes a connection of its own. ENOENT, ENOTDIR,
  // ENAMETOOLONG from the host. EIO when the host has ended, does not answer within
  // HostClient::kTimeout, or answers something else than a file.
  Result<HostFile> At(std::string_view path) const;

 private:
  std::string socket_path_;
};

}  // namespace rdmaemu::cli
