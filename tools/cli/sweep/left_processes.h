// Processes that a run of a test has left running, such as daemons.
#pragma once

#include <cstddef>
#include <string>

namespace rdmaemu::cli {

// How long a process may still run after the test, in ms, and after SIGTERM. Afterwards it gets
// SIGKILL.
inline constexpr int kLeftProcessEndsWithin_ms = 500;

// Makes this process the parent of processes whose parents have ended (PR_SET_CHILD_SUBREAPER). A
// process that a run leaves is then a descendant of this process.
void AdoptLeftProcesses();

// Ends the descendants of this process that have `mark` ("NAME=value") in the environment with
// which they were started. Returns how many programs of the test it ended. Processes of `rdmaemu`,
// which keep the host of such programs, do not count.
size_t EndLeftProcesses(const std::string& mark);

}  // namespace rdmaemu::cli
