// Programs that the command starts and waits for.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace rdmaemu::cli {

// Starts a program whose standard output is our standard error. SIGTERM ends it when the calling
// thread ends. Returns -1 with errno set when there is no process.
pid_t Spawn(const std::vector<std::string>& command);

// Waits for the end of a child. Returns its wait status.
int WaitFor(pid_t child);
// Returns the wait status of a child that has ended, or nothing.
std::optional<int> HasEnded(pid_t child);

// "0", "3", "signal 15", of a wait status; as `run` reports it, 128 + n stands for signal n.
std::string StatusText(int wait_status);

// The process and all that it started, directly or not.
std::vector<pid_t> ProcessTree(pid_t root);

// Whether one of the processes listens on a TCP port in its network namespace.
bool ListensOnTcp(const std::vector<pid_t>& processes);
// Whether one of the processes listens by rdma_listen on a device of the kernel: the command
// `rdma` of iproute2 says so. False where there is no such command.
bool ListensOnKernelDevice(const std::vector<pid_t>& processes);

}  // namespace rdmaemu::cli
