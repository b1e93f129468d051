// `rdmaemu run --private`: hosts that no other command on the machine can find.
#pragma once

#include <string>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// A directory of hosts for one run, in $XDG_RUNTIME_DIR or /tmp. RDMAEMU_DIR contains its path for
// this process and its children.
class PrivateRegistry {
 public:
  // Creates the directory. Enters a network namespace with only a loopback interface if the kernel
  // allows it and `options` have only loopback addresses. Otherwise prints a note on stderr. Call
  // this with a single thread.
  static runtime::OrMessage<PrivateRegistry> Make(const runtime::HostOptions& options);
  PrivateRegistry(PrivateRegistry&& other) noexcept;
  PrivateRegistry& operator=(PrivateRegistry&&) = delete;
  // Stops the remaining hosts and removes the directory, except nonempty logs.
  ~PrivateRegistry();

 private:
  explicit PrivateRegistry(std::string directory) : directory_(std::move(directory)) {}

  std::string directory_;
};

}  // namespace rdmaemu::cli
