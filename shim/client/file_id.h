// Which file a descriptor's number stands for. A program may close descriptors that it did not open
// (closefrom(3)) and open files of its own under the same numbers.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

namespace rdmaemu::client {

// All eventfds of a system have one id; each socket has its own.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

// All zero when the descriptor is not open. Leaves errno alone.
FileId FileIdOf(int fd);

}  // namespace rdmaemu::client
