// Becoming the program that `run` runs.
#pragma once

#include <string>
#include <vector>

namespace rdmaemu::cli {

// Statuses of a program that did not run.
inline constexpr int kNotFound = 127, kNotExecutable = 126;

// As execvp(3); when it fails it says why and ends this process, with one of these, as a shell
// does.
[[noreturn]] void Execute(const std::vector<std::string>& command);

}  // namespace rdmaemu::cli
