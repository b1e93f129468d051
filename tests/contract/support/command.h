// Asks the emulator's own command line about its hosts, where there is one: on other backends the
// checks that need it are skipped.
#pragma once

#include <sys/types.h>

#include <string>

namespace rdma_contract {

// False on a backend other than the emulator.
bool OnTheEmulator();
// `rdmaemu hosts --json`.
std::string HostsJson();
// True when no host holds an id, QP, CQ, SRQ, region, window or address handle any more; waits up
// to limit_ms for it, because a dead process is cleaned up after a moment.
bool HostsAreEmpty(int limit_ms);
// The process of a host, -1 when there is none of that name.
pid_t ProcessOfHost(const std::string& name);

}  // namespace rdma_contract
