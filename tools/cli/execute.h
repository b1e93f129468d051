// Becoming the program that `run` runs.
#pragma once

#include <string>
#include <vector>

namespace rdmaemu::cli {

// As execvp(3); when it fails it says why and ends this process, with 127 and 126 as a shell does.
[[noreturn]] void Execute(const std::vector<std::string>& command);

}  // namespace rdmaemu::cli
