// Replaces this process by the program of `run`.
#pragma once

#include <string>
#include <vector>

namespace rdmaemu::cli {

// The exit statuses if the program could not run.
inline constexpr int kNotFound = 127, kNotExecutable = 126;

// Call this first. A process that inherits an ignored SIGCHLD cannot learn how its children ended.
// Execute ignores it again for the program.
void HearOfChildren();

// Works as execvp(3). On failure prints the reason and exits with one of these statuses, as a shell
// does.
[[noreturn]] void Execute(const std::vector<std::string>& command);

}  // namespace rdmaemu::cli
