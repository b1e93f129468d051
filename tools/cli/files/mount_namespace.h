// A private mount namespace in which a program finds a host's devices under /sys and /dev, beside
// the machine's own entries. docs/filesystem.md describes what the program sees.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::cli {

class MountNamespace {
 public:
  // Makes the namespace. A separate process serves the files, and ends when the last process in the
  // namespace has ended. An ordinary user also gets a user namespace, in which only the own user
  // and group have a name. Call this with a single thread. On failure returns the reason, and
  // nothing remains.
  static runtime::OrMessage<MountNamespace> Make(const std::string& socket_path);

  MountNamespace(MountNamespace&& other) noexcept
      : user_(std::move(other.user_)),
        mount_(std::move(other.mount_)),
        server_(std::exchange(other.server_, 0)) {}
  MountNamespace& operator=(MountNamespace&&) = delete;
  // Closes this process's handle to the namespace. The namespace remains while processes are in it.
  // Call this in the process that called Make.
  ~MountNamespace();

  // Moves this process, which must have a single thread, into the namespace. The process keeps its
  // current directory. Returns 0 or an errno.
  int Join() const;

 private:
  // The longest wait for the server's end, in ms. It ends this soon after the namespace's last
  // process. Processes that the program left behind keep the server running.
  static constexpr int kServerEndMs = 100;

  MountNamespace(runtime::UniqueFd user, runtime::UniqueFd mount, pid_t server)
      : user_(std::move(user)), mount_(std::move(mount)), server_(server) {}
  runtime::UniqueFd user_;  // empty for root
  runtime::UniqueFd mount_;
  pid_t server_;
};

}  // namespace rdmaemu::cli
