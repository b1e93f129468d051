// Starts programs, waits for them, and inspects their processes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace rdmaemu::cli {

// Starts a program. The program's standard output is the caller's standard error. The program gets
// SIGTERM when the calling thread ends. Returns -1 and sets errno when no process can be created.
pid_t Spawn(const std::vector<std::string>& command);

// Waits for the end of a child. Returns its wait status.
int WaitFor(pid_t child);
// Returns the wait status of a child that has ended, or nothing.
std::optional<int> HasEnded(pid_t child);

// Returns a wait status as text: "0", "3", "signal 15". The exit status 128 + n is also "signal n",
// because `run` exits with it.
std::string StatusText(int wait_status);

// Returns the process and all processes that it started, directly or indirectly.
std::vector<pid_t> ProcessTree(pid_t root);

// Returns whether one of the processes listens on a TCP port in its network namespace.
bool ListensOnTcp(const std::vector<pid_t>& processes);
// Returns whether one of the processes listens by rdma_listen on a device of the kernel. Runs the
// command `rdma` of iproute2. Returns false if this command is not installed.
bool ListensOnKernelDevice(const std::vector<pid_t>& processes);

}  // namespace rdmaemu::cli
