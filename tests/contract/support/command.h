// Queries the emulator's hosts by its command line. On other backends the checks that need it are
// skipped.
#pragma once

#include <sys/types.h>

#include <string>

namespace rdma_contract {

// Returns false on a backend other than the emulator.
bool OnTheEmulator();
// Returns the output of `rdmaemu hosts --json`.
std::string HostsJson();
// Returns true when no host has an id, QP, CQ, SRQ, region, window or address handle any more.
// Waits up to limit_ms, because the cleanup after a dead process takes a moment.
bool HostsAreEmpty(int limit_ms);
// Returns the process of a host, -1 when no host has that name.
pid_t ProcessOfHost(const std::string& name);

}  // namespace rdma_contract
