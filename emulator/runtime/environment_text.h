// The part of a report's environment.txt that describes the process and its machine.
#pragma once

#include <string>

namespace rdmaemu::runtime {

// Returns lines: the working directory, the kernel, limits, and the variables RDMAEMU_*, LD_* and
// XDG_RUNTIME_DIR. All other variables may be secrets.
std::string EnvironmentText();

}  // namespace rdmaemu::runtime
