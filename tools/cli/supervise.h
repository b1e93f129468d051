// Starts a program as a child and waits for its end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace rdmaemu::cli {

// Returns the exit status as a shell does: the program's status, or 128 + n when signal n ended the
// program.
int ExitStatus(int wait_status);

struct EndedProgram {
  pid_t process;
  int wait_status;
};

// Starts the program, forwards signals to it and waits for its end. Calls `look` (may be empty) at
// least every 50 ms meanwhile. First calls `enter` (may be empty) in the new process. `enter`
// returns 0 or an errno. Leaves SIGCHLD and the forwarded signals blocked. When the program cannot
// be started, prints an error and returns the exit status.
tl::expected<EndedProgram, int> Supervised(const std::vector<std::string>& command,
                                           const std::function<void()>& look,
                                           const std::function<int()>& enter = {});

// Prints each error as an error of `run`. Returns true when there are no errors.
bool PrintErrors(const std::vector<std::string>& errors);

}  // namespace rdmaemu::cli
