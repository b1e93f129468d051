// The bells of other hosts (emulator/abi/send_lane.h). A program may close descriptors that it did
// not open, and use their numbers for its own files. So each byte is preceded by a look at the
// file.
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emulator/abi/send_lane.h"
#include "shim/client/client.h"
#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

// Whether a descriptor is the bell. Inode numbers of pipes are unique.
bool IsBell(const LaneBell& bell) {
  struct stat status;
  return SysFileStatus(bell.fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
         status.st_ino == bell.inode;
}

}  // namespace

bool RingBell(SendLane& lane, const LaneBell& bell) {
  if (!lane.MustWakeHost()) return true;
  const int before = errno;
  // A full pipe has woken up the host.
  const bool is_rung = IsBell(bell) && (syscall(SYS_write, bell.fd, "", 1) == 1 || errno == EAGAIN);
  errno = before;
  return is_rung;
}

void CloseBell(const LaneBell& bell) {
  const int before = errno;
  if (bell.fd >= 0 && IsBell(bell)) SysClose(bell.fd);
  errno = before;
}

}  // namespace rdmaemu::client
