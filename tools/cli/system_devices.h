// The machine's own RDMA devices in /sys and /dev, for `rdmaemu run --backend system`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

struct SystemDevice {
  std::string name;
  std::string verbs_node;   // under /dev/infiniband, such as uverbs0; empty: none exists
  bool accessible = false;  // this process may open it
  bool active = false;      // one of its ports is active
};

// The directories to search. A test uses its own.
struct SystemRoots {
  std::string sys = "/sys";
  std::string dev = "/dev";
};

std::vector<SystemDevice> FindSystemDevices(const SystemRoots& roots);

// Checks the devices that a program on the device `wanted` (empty: any) needs. The error says what
// is missing, which directory was searched, and how to set it up. The result lists warnings about
// optional parts.
runtime::OrMessage<std::vector<std::string>> CheckSystemDevices(const SystemRoots& roots,
                                                                const std::string& wanted);

}  // namespace rdmaemu::cli
