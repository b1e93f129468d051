// Identifies the file behind a descriptor number. A program may close descriptors that it did not
// open (closefrom(3)) and open its own files with the same numbers.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

namespace rdmaemu::client {

// All eventfds of a system have the same id. Each socket has its own.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

// Returns zeros if the descriptor is not open. Preserves errno.
FileId FileIdOf(int fd);

}  // namespace rdmaemu::client
