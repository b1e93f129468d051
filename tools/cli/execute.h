// Replaces this process by the program of `run`.
#pragma once

#include <string>
#include <vector>

namespace rdmaemu::cli {

// The exit statuses of a program that could not be run.
inline constexpr int kNotFound = 127, kNotExecutable = 126;

// Restores the default action of SIGCHLD. Call this first, because a process with an ignored
// SIGCHLD cannot get the exit statuses of its children. Execute ignores the signal again for the
// program.
void HearOfChildren();

// Works as execvp(3). On failure prints the reason and exits with one of these statuses, as a shell
// does.
[[noreturn]] void Execute(const std::vector<std::string>& command);

}  // namespace rdmaemu::cli
