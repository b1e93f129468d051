// The bells of other hosts (emulator/abi/send_lane.h). A program may close descriptors that it did
// not open, and use their numbers for its own files. So each byte is preceded by a look at the
// file.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emulator/abi/send_lane.h"
#include "shim/client/client.h"
#include "shim/client/file_id.h"
#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

// Whether a descriptor is the bell. Inode numbers of pipes are unique.
bool IsBell(int fd, const LaneBell& bell) {
  struct stat status;
  return SysFileStatus(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_ino == bell.inode;
}

}  // namespace

int OpenBell(const LaneBell& bell) {
  if (bell.pid == 0) return -1;
  const int before = errno;
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", bell.pid, bell.fd);
  // With both ends open, a write to an ended host's bell raises no SIGPIPE.
  int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (fd >= 0 && !IsBell(fd, bell)) {
    SysClose(fd);
    fd = -1;
  }
  errno = before;
  return fd;
}

bool RingBell(SendLane& lane, int fd, const LaneBell& bell) {
  if (!lane.MustWakeHost()) return true;
  const int before = errno;
  // A full pipe has woken up the host.
  const bool is_rung = IsBell(fd, bell) && (syscall(SYS_write, fd, "", 1) == 1 || errno == EAGAIN);
  errno = before;
  return is_rung;
}

void CloseBell(int fd, const LaneBell& bell) {
  const int before = errno;
  if (fd >= 0 && IsBell(fd, bell)) SysClose(fd);
  errno = before;
}

}  // namespace rdmaemu::client
