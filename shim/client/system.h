// System calls without the C library's wrappers. Programs such as librspreload interpose socket(),
// poll() and similar functions, but calls from here must reach the kernel.
//
// A descriptor that only this library uses must be used and closed by these calls alone. Otherwise
// ThreadSanitizer would see its use but not its close. ThreadSanitizer would then report a race
// with the thread that gets the same number next. A descriptor that the program also uses is closed
// by close(2).
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace rdmaemu::client {

// Each function returns what its system call returns: -1 and errno on failure. The caller handles
// EINTR.
inline int SysSocket(int domain, int type) {
  return static_cast<int>(syscall(SYS_socket, domain, type, 0));
}
inline int SysConnect(int fd, const sockaddr* name, socklen_t size) {
  return static_cast<int>(syscall(SYS_connect, fd, name, size));
}
inline int SysPeerCredentials(int fd, ucred* out) {
  socklen_t size = sizeof *out;
  return static_cast<int>(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, out, &size));
}
inline ssize_t SysSendMessage(int fd, const msghdr* message) {
  return syscall(SYS_sendmsg, fd, message, MSG_NOSIGNAL);
}
inline ssize_t SysReceiveMessage(int fd, msghdr* message) {
  return syscall(SYS_recvmsg, fd, message, MSG_CMSG_CLOEXEC);
}
inline int SysPoll(pollfd* fds, unsigned count) {
  return static_cast<int>(syscall(SYS_ppoll, fds, count, nullptr, nullptr, 0));
}
inline int SysDuplicate(int fd) {
  return static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0));
}
// Moves a descriptor above those of the standard input, output and error. A program may have been
// started without these, and prints to their numbers. Returns the same descriptor if it is above
// them, or if the limit of descriptors leaves no other number.
inline int SysAboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (moved < 0) return fd;
  syscall(SYS_close, fd);
  return moved;
}
// Returns true if the peer or this side has closed the socket. A signal interrupts ppoll(2) even if
// it does not wait.
inline bool SysHasHungUp(int fd) {
  pollfd poll{fd, POLLRDHUP, 0};
  const timespec at_once{0, 0};
  long ready;
  do {
    ready = syscall(SYS_ppoll, &poll, 1, &at_once, nullptr, 0);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}
inline void SysClose(int fd) { syscall(SYS_close, fd); }
inline int SysFileStatus(int fd, struct stat* out) {
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
// Returns MAP_FAILED on failure.
inline void* SysMapShared(int fd, size_t length) {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t{0}));
}
// Adds to an eventfd. write(2) to an eventfd writes eight bytes or nothing, and fails with EINTR
// only if it would block.
inline void SysAddToEventfd(int fd, uint64_t count) {
  while (syscall(SYS_write, fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace rdmaemu::client
