// The machine's own RDMA devices, as /sys and /dev show them, for `rdmaemu run --backend system`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

struct SystemDevice {
  std::string name;
  std::string verbs_node;   // under /dev/infiniband, such as uverbs0; empty: the kernel made none
  bool accessible = false;  // this process may open it
  bool active = false;      // a port of it is
};

// Where to look; a test has roots of its own.
struct SystemRoots {
  std::string sys = "/sys";
  std::string dev = "/dev";
};

std::vector<SystemDevice> FindSystemDevices(const SystemRoots& roots);

// What a program needs that is to run on `wanted` (empty: on any); or what is missing, where it
// was looked for, and how it is set up. What a program may do without comes back as warnings.
runtime::OrMessage<std::vector<std::string>> CheckSystemDevices(const SystemRoots& roots,
                                                                const std::string& wanted);

}  // namespace rdmaemu::cli
