// The subcommands of rdmaemu as functions of their parsed options. The *_options.h files parse the
// command line. Each function returns the process's exit status and prints an error as one line.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"
#include "tools/cli/checks.h"

namespace rdmaemu::cli {

// The exit status for an error in `run` itself and not in its program, as in env(1) and timeout(1).
inline constexpr int kRunFailed = 125;
// Exit statuses of `run` when the program succeeded but its run failed a check. docs/command.md has
// the table of all exit statuses.
inline constexpr int kCheckFailed = 121;     // with --check=error
inline constexpr int kRunDeparted = 122;     // the run departed from the trace of --replay
inline constexpr int kRuleNeverFired = 123;  // with --strict
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kTimedOut = 124;  // as timeout(1)

// A trace of what the program saw (docs/trace.md), on any backend.
struct ProgramTraceRequest {
  std::string path = {};  // "": none
  uint64_t limit_bytes = 0;
  bool hashes_payloads = false;
};

// How a program finds its host's devices under /sys and /dev (docs/filesystem.md).
enum class SysfsDoor {
  kAuto,  // by FUSE if the system allows it, else by the preload library
  kFuse,
  kPreload,
  kOff,
};

// --report and --report-always of `run` (run_report.h).
struct ReportRequest {
  std::string directory = {};  // "": none
  bool is_always = false;      // also after success
  std::string version = {};    // of this command
};

// Runs a program on a host. Exits with the program's status, or with 128 + n if signal n ended the
// program. Prints the host's seed unless the status is 0.
struct RunRequest {
  runtime::HostOptions options;
  bool strict = false;  // a rule of the host that never fired turns success into failure
  // The trace of an earlier run. A run that departs from this trace fails.
  std::string replay_path = {};
  bool is_private = false;  // on hosts that no other command can find
  ProgramTraceRequest program_trace = {};
  ChecksRequest checks = {};
  SysfsDoor sysfs = SysfsDoor::kAuto;
  std::vector<std::string> command;
  ReportRequest report = {};
  // Called when the program has ended and the host still runs.
  std::function<void(const runtime::Registry&, runtime::HostClient&)> at_end = {};
};
int Run(const RunRequest& request);
// Runs a program on the machine's own rdma-core. The program sees all devices, or only the named
// one. Of `options`, only the devices, the name, the scenario, the seed and the trace apply.
// Without a trace, checks and rules, the program replaces this process.
struct SystemRequest {
  runtime::HostOptions options;
  bool has_rules = false;  // starts a host that accepts fault rules
  bool strict = false;     // as in RunRequest
  ProgramTraceRequest program_trace = {};
  ChecksRequest checks = {};
  std::vector<std::string> command;
};
int RunOnSystem(const SystemRequest& request);
// Prints the environment that `run` gives to a program.
int Env(const runtime::HostOptions& options);
// Lists the hosts. A nonempty `host` selects one.
int Hosts(const std::string& host, bool json);
// Shows the hosts once per interval ("1s") until the user ends the command. Returns 0 after q. A
// signal that ends the command ends the process.
int HostsWatch(const std::string& host, const std::string& interval, bool json);
int Stop(const std::string& name);
// A request of `device`, `port` or `address` to a running host. Without `change`, lists the host's
// devices.
struct DeviceRequest {
  std::string host;
  std::optional<DeviceChange> change;
  std::string device;  // NAME, or NAME[=PROFILE] of an added device
  std::vector<std::string> addresses;
  uint32_t pkey_index = 0;
  std::string pkey = {};  // of kSetPkey: a number, such as "0x8001"
  bool json = false;      // print the devices after the change
};
int ChangeDevices(const DeviceRequest& request);
// Change and list the fault rules of a running host.
int FaultAdd(const std::string& host, const std::string& rule);
int FaultList(const std::string& host, bool json);
int FaultRemove(const std::string& host, const std::string& name);
int FaultRelease(const std::string& host, const std::string& name);
int FaultClear(const std::string& host);
// Returns when the rule has fired `times` times. Returns kTimedOut after `timeout` ("10s") of real
// time.
int FaultWait(const std::string& host, const std::string& name, uint64_t times,
              const std::string& timeout);
// Waits until the host replies and all given conditions hold. Returns kTimedOut after `timeout`
// ("10s") of real time. The host may start after this call.
struct WaitRequest {
  std::string host;
  std::optional<uint16_t> listening;  // a port on which a program listens with rdma_listen
  std::optional<std::string> device;  // a present device with an active port
  std::optional<std::string> event;   // "ESTABLISHED", "RDMA_CM_EVENT_ESTABLISHED"
  std::optional<uint64_t> times;      // count of the event since the host's start; default 1
  std::string timeout = "10s";
  bool json = false;  // print the host's status at the end, as `hosts --json` does
};
int Wait(const WaitRequest& request);
// Checks what this machine allows (docs/command.md). Returns 0 when all that is required works.
int Doctor(bool json);
// Copies the binary, the libraries and their files below a prefix.
int Install(const std::string& prefix);
// Show and change the clock of a running host (docs/time.md). The last two advance the time of all
// hosts with a manual clock. They return when time has reached its target. `by` is a number and its
// unit, as in "250ms".
int ClockShow(const std::string& host, bool json);
int ClockAdvance(const std::string& host, const std::string& by);
int ClockRunUntilIdle(const std::string& host);
// Mounts the running hosts as files on a directory (docs/mount.md). Returns when they are mounted.
// A process in the background then serves the files. With `is_foreground`, this process serves them
// itself, until they are unmounted or a signal arrives.
int Mount(const std::string& directory, bool is_foreground);
// Removes the mount. `is_lazy`: also while programs use the mount.
int Unmount(const std::string& directory, bool is_lazy);
// Runs a host: in the foreground until it is stopped, or as a daemon until its last client
// detaches. With `daemonize`, returns when the host accepts connections. The host may have run
// already.
int HostMain(const runtime::HostOptions& options, bool daemonize);

// Prints "error: " and the message as one line on stderr. Returns `status`.
int Fail(int status, const std::string& message);

}  // namespace rdmaemu::cli
