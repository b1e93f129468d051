// The subcommands of rdmaemu, as functions of their parsed options; main.cc parses. Each returns
// the process's exit status and prints errors as one line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// Of an error that is ours and not the program's that `run` runs (as env(1) and timeout(1) do).
inline constexpr int kRunFailed = 125;
// Of `run`, when the program succeeded and its run was not what was asked for. docs/command.md has
// the table of all exit statuses.
inline constexpr int kRunDeparted = 122;     // from the trace of --replay
inline constexpr int kRuleNeverFired = 123;  // with --strict
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kTimedOut = 124;  // as timeout(1)

// Runs a program on a host; exits with its status, 128 + n when signal n ended it, and prints the
// host's seed when that is not 0.
struct RunRequest {
  runtime::HostOptions options;
  bool strict = false;  // a rule of the host that never fired makes a program's success a failure
  // The trace of an earlier run to compare this one with. A run that departs from it fails.
  std::string replay_path = {};
  bool is_private = false;  // on hosts that no other command can find
  std::vector<std::string> command;
};
int Run(const RunRequest& request);
// Becomes a program on the machine's own rdma-core. It sees all devices, or the one that is named;
// returns only when it could not.
int RunOnSystem(const std::vector<std::string>& devices, const std::vector<std::string>& command);
// Prints the environment that `run` gives to a program.
int Env(const runtime::HostOptions& options);
// `host`: only that one; empty: all.
int Hosts(const std::string& host, bool json);
int Stop(const std::string& name);
// What `device`, `port` and `address` do to a host that runs; nothing in `change`: list its
// devices.
struct DeviceRequest {
  std::string host;
  std::optional<DeviceChange> change;
  std::string device;  // NAME, of an added one NAME[=PROFILE]
  std::vector<std::string> addresses;
  uint32_t pkey_index = 0;
  std::string pkey = {};  // of kSetPkey: a number, such as "0x8001"
  bool json = false;      // print the devices as they are afterwards
};
int ChangeDevices(const DeviceRequest& request);
// The rules of a running host.
int FaultAdd(const std::string& host, const std::string& rule);
int FaultList(const std::string& host, bool json);
int FaultRemove(const std::string& host, const std::string& name);
int FaultRelease(const std::string& host, const std::string& name);
int FaultClear(const std::string& host);
// Returns when the rule has fired `times` times; kTimedOut after `timeout` ("10s") of real time.
int FaultWait(const std::string& host, const std::string& name, uint64_t times,
              const std::string& timeout);
// Returns when the host answers and everything that is given holds; kTimedOut after `timeout`
// ("10s") of real time. A host that does not run yet is waited for.
struct WaitRequest {
  std::string host;
  std::optional<uint16_t> listening;  // a port on which a program listens by rdma_listen
  std::optional<std::string> device;  // there, with an active port
  std::optional<std::string> event;   // "ESTABLISHED", "RDMA_CM_EVENT_ESTABLISHED"
  std::optional<uint64_t> times;      // of the event, since the host's start; default 1
  std::string timeout = "10s";
  bool json = false;  // print the host's status at the end, as `hosts --json` does
};
int Wait(const WaitRequest& request);
// Copies binary, libraries and what belongs to them below a prefix.
int Install(const std::string& prefix);
// The clock of a running host (docs/time.md): shows it; moves the time of all hosts whose clock is
// manual, and returns when it has arrived. `by`: a number and its unit, as in "250ms".
int ClockShow(const std::string& host, bool json);
int ClockAdvance(const std::string& host, const std::string& by);
int ClockRunUntilIdle(const std::string& host);
// A host itself: in the foreground until it is stopped, or as a daemon until its last client has
// gone. With `daemonize` it returns when the host can be reached, also when it runs already.
int HostMain(const runtime::HostOptions& options, bool daemonize);

// "error: " and the line on stderr; returns `status`.
int Fail(int status, const std::string& message);

}  // namespace rdmaemu::cli
