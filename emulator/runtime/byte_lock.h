// Locks of single bytes of a file (F_OFD_SETLK, fcntl(2)). An open file description holds a lock,
// so the kernel releases the locks of a process that dies. Nothing here waits for a lock:
// F_OFD_SETLKW has no time limit, and the holder may be stopped.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <cstdint>

namespace rdmaemu::runtime {

enum class Locked : uint8_t { kYes, kNo, kFailed };

inline struct flock LockOf(int type, off_t byte) {
  struct flock lock {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// Locks or unlocks the byte (F_WRLCK, F_UNLCK). Returns kNo if another open file description holds
// the lock, and kFailed with errno if the file cannot be locked.
inline Locked SetLock(int fd, int type, off_t byte) {
  struct flock lock = LockOf(type, byte);
  while (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EACCES ? Locked::kNo : Locked::kFailed;
  }
  return Locked::kYes;
}

// Returns true if another open file description holds the lock, or if the file cannot be examined.
inline bool MayBeLocked(int fd, off_t byte) {
  struct flock lock = LockOf(F_WRLCK, byte);
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace rdmaemu::runtime
