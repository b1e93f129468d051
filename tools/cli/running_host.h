// Finds a running host, compares it with the requested options, and stops it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// Returns one phrase for each requested option that differs from the running host's, such as
// "address 127.0.1.1 instead of 127.0.1.2". Options that were not requested do not matter.
std::vector<std::string> Differences(const runtime::HostOptions& asked,
                                     const runtime::HostRecord& running);

// The result of FindOrLock. If the host runs as requested, `running` is true. If no host runs,
// `lock` is held and the caller must start the host. FindOrLock stops an unused host that has other
// options, and prints a note on stderr. A host with other options that is in use is an error. A
// host is in use when it has clients, when rules were added while it ran, or when `rdmaemu host`
// started it.
struct Decision {
  bool running = false;
  runtime::UniqueFd lock;
  pid_t pid = 0;            // of the running host
  std::string shared_with;  // how the running host is used, for a note; empty: unused
};
runtime::OrMessage<Decision> FindOrLock(const runtime::Registry& registry,
                                        const runtime::HostOptions& options);

// Prints a note on stderr if the running host has other users.
void NoteSharing(const std::string& name, const Decision& running);

// Stops unused hosts of other names that hold an address of `options`, and prints a note on stderr.
// Does not stop hosts that are in use. Opening their port fails later. The error of that port names
// the owner.
runtime::OrMessage<void> FreeAddresses(const runtime::Registry& registry,
                                       const runtime::HostOptions& options);

// Waits until the process of the host has ended, at most 10 s. Returns false if the process still
// runs.
bool AwaitEnd(const runtime::Registry& registry, const std::string& name, pid_t pid);
// Stops the host and waits until its process has ended.
runtime::OrMessage<void> StopAndWait(const runtime::Registry& registry, const std::string& name,
                                     runtime::HostClient& client);

// Returns the error "host a (pid 12) was started by another version of rdmaemu ...".
std::string VersionMessage(const std::string& name, pid_t pid);
// Returns the error "no host a is running in DIRECTORY; running: b, c".
std::string NotRunningMessage(const runtime::Registry& registry, const std::string& name);
// Returns the error "host a (pid 12) does not answer ...".
std::string HungMessage(const std::string& name, pid_t pid);

// The names of a sweep's rules without an effect begin with this. A sweep adds them for every place
// at which something may happen.
inline constexpr std::string_view kSweepWitness = "sweep.witness.";

// Prints on stderr which rules of the host never fired, as errors or as warnings. Returns true if
// all fired, or if there are none. Rules with the name of kSweepWitness do not count. If a rule
// ended the host, reads the rules by Registry::ReadCrash. With `expects_host`, a host that ended
// otherwise is an error: prints that the host has ended and its rules are lost, and returns false.
bool ReportUnfired(const runtime::Registry& registry, const std::string& name,
                   runtime::HostClient& client, bool expects_host, bool is_error);

}  // namespace rdmaemu::cli
