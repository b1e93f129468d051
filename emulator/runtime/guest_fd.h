// A descriptor of this library in a program's process. A program may close descriptors that it did
// not open (closefrom(3)), and open its own files with the same numbers.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class GuestFd {
 public:
  // GuestFd moves descriptors to numbers from this one on. The program's own descriptors seldom
  // have such numbers.
  static constexpr int kFirst = 512;

  GuestFd() = default;
  // Takes the descriptor and gives it a high number if there is one.
  explicit GuestFd(UniqueFd fd) {
    const int high = fd ? fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirst) : -1;
    fd_ = high >= 0 ? UniqueFd(high) : std::move(fd);
    (void)Read(id_);
  }
  GuestFd(GuestFd&& other) noexcept = default;
  GuestFd& operator=(GuestFd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::move(other.fd_);
    id_ = other.id_;
    return *this;
  }
  ~GuestFd() { Reset(); }

  int get() const { return fd_.get(); }
  // Returns true if the number still refers to this descriptor's file. All eventfds count as the
  // same file. Preserves errno.
  bool IsOpen() const {
    Id now;
    return fd_ && Read(now) && now == id_;
  }
  // Closes the descriptor, unless the program has reused its number.
  void Reset() {
    if (!IsOpen()) (void)fd_.Release();
    fd_.Reset();
  }

 private:
  struct Id {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Id&) const = default;
  };
  bool Read(Id& id) const {
    const int before = errno;
    struct stat status;
    const bool is_open = fstat(fd_.get(), &status) == 0;
    errno = before;
    if (is_open) id = {status.st_dev, status.st_ino};
    return is_open;
  }

  UniqueFd fd_;
  Id id_;
};

}  // namespace rdmaemu::runtime
