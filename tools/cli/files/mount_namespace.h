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
  // Makes the namespace. The files are served by a process of its own, which ends when the last
  // process in the namespace has ended. An ordinary user gets a user namespace too, in which only
  // the own user and group have a name. Call this with a single thread. On failure returns the
  // reason, and nothing remains.
  static runtime::OrMessage<MountNamespace> Make(const std::string& socket_path);

  MountNamespace(MountNamespace&& other) noexcept
      : user_(std::move(other.user_)),
        mount_(std::move(other.mount_)),
        server_(std::exchange(other.server_, 0)) {}
  MountNamespace& operator=(MountNamespace&&) = delete;
  // Leaves the namespace to the processes in it. Call this in the process that called Make.
  ~MountNamespace();

  // Moves this process, which must have a single thread, into the namespace. It keeps its current
  // directory. Returns 0 or an errno.
  int Join() const;

 private:
  // The server ends so soon after the namespace's last process. Processes that the program left
  // behind keep it.
  static constexpr int kServerEndMs = 100;

  MountNamespace(runtime::UniqueFd user, runtime::UniqueFd mount, pid_t server)
      : user_(std::move(user)), mount_(std::move(mount)), server_(server) {}
  runtime::UniqueFd user_;  // empty for root
  runtime::UniqueFd mount_;
  pid_t server_;
};

}  // namespace rdmaemu::cli
