#include "shim/client/file_id.h"

#include <errno.h>

#include "shim/client/system.h"

namespace rdmaemu::client {

FileId FileIdOf(int fd) {
  const int before = errno;
  struct stat status;
  const bool is_open = SysFileStatus(fd, &status) == 0;
  errno = before;
  return is_open ? FileId{status.st_dev, status.st_ino} : FileId{};
}

}  // namespace rdmaemu::client
