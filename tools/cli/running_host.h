// Finding a running host, comparing it with what was asked for, and ending it.
#pragma once

#include <string>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// One phrase for each option that was asked for and differs from what the host was started with:
// "address 127.0.1.1 instead of 127.0.1.2". Options not asked for do not matter.
std::vector<std::string> Differences(const runtime::HostOptions& asked,
                                     const runtime::HostRecord& running);

// Makes sure that the lock is free or the host runs as asked. Nothing and a held lock: start it.
// Nothing and no lock: it runs. A host that runs differently is stopped, which a note on stderr
// says; but one that has clients, was given rules while it ran, or lives until it is stopped is
// somebody's, and an error.
struct Decision {
  bool running = false;
  runtime::UniqueFd lock;
  pid_t pid = 0;            // of a host that runs
  std::string shared_with;  // who counts on a host that runs, for a note; empty: nobody
};
runtime::OrMessage<Decision> FindOrLock(const runtime::Registry& registry,
                                        const runtime::HostOptions& options);

// Ends other hosts that hold an address of `options` and that nobody counts on; a note on stderr
// says so. Hosts that somebody counts on stay: opening their port fails later, and says whose it
// is.
runtime::OrMessage<void> FreeAddresses(const runtime::Registry& registry,
                                       const runtime::HostOptions& options);

// Stops the host and waits until it has gone.
runtime::OrMessage<void> StopAndWait(const runtime::Registry& registry, const std::string& name,
                                     runtime::HostClient& client);

// "host a has another version than this rdmaemu ...".
std::string VersionMessage(const std::string& name, pid_t pid);
// "no host a is running in DIRECTORY; running: b, c".
std::string NotRunningMessage(const runtime::Registry& registry, const std::string& name);
std::string HungMessage(const std::string& name, pid_t pid);

// Prints on stderr which rules of the host never fired, as errors or as warnings. True when all
// did, or there are none. A host that a rule has ended left its rules behind (Registry::ReadCrash).
// `expects_host`: also prints that the host has gone, and its rules with it, and returns false.
bool ReportUnfired(const runtime::Registry& registry, const std::string& name,
                   runtime::HostClient& client, bool expects_host, bool is_error);

}  // namespace rdmaemu::cli
