// `rdmaemu run --private`: hosts that no other command of the machine can find.
#pragma once

#include <string>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// A directory of hosts that is made for one run, in $XDG_RUNTIME_DIR or /tmp. RDMAEMU_DIR names it
// for this process and those that it starts.
class PrivateRegistry {
 public:
  // Makes the directory. Enters a network namespace with a loopback interface alone where the
  // kernel allows that and `options` ask for loopback addresses only; a note on stderr says when it
  // does not. Call with one thread.
  static runtime::OrMessage<PrivateRegistry> Make(const runtime::HostOptions& options);
  PrivateRegistry(PrivateRegistry&& other) noexcept;
  PrivateRegistry& operator=(PrivateRegistry&&) = delete;
  // Stops the hosts that are still there, and removes the directory, but for logs.
  ~PrivateRegistry();

 private:
  explicit PrivateRegistry(std::string directory) : directory_(std::move(directory)) {}

  std::string directory_;
};

}  // namespace rdmaemu::cli
