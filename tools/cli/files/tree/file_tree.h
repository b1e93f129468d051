// The interface between a tree of files and the FUSE door that serves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/base/result.h"

namespace rdmaemu::cli {

using rdmaemu::Fail;  // commands.h has another one, for exit statuses

struct HostFile {
  FileKind kind;
  uint32_t mode;          // permission bits
  uint32_t major, minor;  // of a character device
  int read_error;         // positive errno of reading a text file, or 0
  std::string text;       // of a text file, or a link's target
  std::vector<std::pair<std::string, FileKind>> entries;  // of a directory
  uint64_t bytes = 0;                                     // the length that stat(2) shows
  bool is_stream = false;  // a text file whose contents FileTree::OpenStream reads
};

// A file that grows while it is open. Only one thread at a time may call Read. Any thread may call
// bytes.
class Stream {
 public:
  virtual ~Stream() = default;
  // Reads at most `out.size()` bytes. Returns 0 at the current end. ENODEV at the end when the host
  // has ended, so that no more bytes can follow. ETIMEDOUT when the host does not reply.
  virtual Result<size_t> Read(uint64_t offset, std::span<char> out) = 0;
  // Returns the length so far.
  virtual uint64_t bytes() const = 0;
};

// Files by absolute path. Several threads may call it. Errors are positive errnos.
class FileTree {
 public:
  virtual ~FileTree() = default;
  // Returns the file at the path. Fails with ENOENT, ENOTDIR, ENAMETOOLONG, or the error of a host
  // that cannot be queried.
  virtual Result<HostFile> At(std::string_view path) const = 0;
  // Executes the command that one write(2) writes to the file.
  virtual Status Write(std::string_view, std::string_view) { return Fail(EACCES); }
  virtual Status Remove(std::string_view) { return Fail(EPERM); }
  virtual Result<std::unique_ptr<Stream>> OpenStream(std::string_view) { return Fail(EINVAL); }
};

}  // namespace rdmaemu::cli
