// Starts a program as a child and waits for its end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace rdmaemu::cli {

// As a shell says it: the program's status, or 128 + n when signal n ended it.
int ExitStatus(int wait_status);

struct EndedProgram {
  pid_t process;
  int wait_status;
};

// Starts the program, passes signals on to it and waits for its end; calls `look` (may be empty)
// every 50 ms meanwhile. The error is the exit status after an error was printed.
tl::expected<EndedProgram, int> Supervised(const std::vector<std::string>& command,
                                           const std::function<void()>& look);

// Prints each as an error of `run`; whether there was none.
bool PrintErrors(const std::vector<std::string>& errors);

}  // namespace rdmaemu::cli
