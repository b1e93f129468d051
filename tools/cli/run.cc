// `rdmaemu run`: runs a program on a host.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "emulator/runtime/process_memory.h"
#include "tools/cli/commands.h"
#include "tools/cli/device_files.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/host_log.h"
#include "tools/cli/private_registry.h"
#include "tools/cli/program_trace/convert.h"
#include "tools/cli/replay.h"
#include "tools/cli/running_host.h"
#include "tools/cli/supervise.h"

namespace rdmaemu::cli {
namespace {

// A host may end between its discovery and our Hello.
constexpr int kStartAttempts = 5;

std::vector<std::string> HostArguments(const std::string& binary,
                                       const runtime::HostOptions& options) {
  std::vector<std::string> arguments = {binary, "host", "--daemonize", "--name", options.name};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {option, value});
  };
  for (const std::string& address : options.addresses) add("--address", address);
  for (const std::string& device : options.devices) add("--device", device);
  for (const std::string& net : options.silent_nets) add("--silent-net", net);
  for (const std::string& gateway : options.gateways) add("--gateway", gateway);
  add("--pcap", options.pcap_path);
  add("--trace", options.trace_path);
  add("--scenario", options.scenario_path);
  add("--clock", options.clock);
  add("--seed", options.seed);
  add("--payload-shortcuts", options.payload_shortcuts);
  add("--wire", options.wire);
  return arguments;
}

// Runs a command to its end, without LD_PRELOAD, which is for the program of `run`. Returns its
// status of wait(2), or an error number.
Result<int> RunWithoutPreload(std::vector<std::string> command) {
  std::vector<char*> arguments, environment;
  for (std::string& word : command) arguments.push_back(word.data());
  for (char** each = environ; *each != nullptr; each++) {
    if (!std::string_view(*each).starts_with("LD_PRELOAD=")) environment.push_back(*each);
  }
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  fflush(nullptr);
  pid_t child = 0;
  if (const int error =
          posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environment.data());
      error != 0) {
    return rdmaemu::Fail(error);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Starts the host if needed. Returns false after an error, whose message has been printed.
bool EnsureHost(const runtime::Registry& registry, const std::string& binary,
                const runtime::HostOptions& options) {
  {
    const auto found = FindOrLock(registry, options);
    if (!found) {
      Fail(kRunFailed, found.error());
      return false;
    }
    if (found->running) {
      NoteSharing(options.name, *found);
      return true;
    }
  }  // The host's own process takes the lock.
  const Result<int> status = RunWithoutPreload(HostArguments(binary, options));
  if (!status) {
    const int error = status.error().code;
    Fail(kRunFailed, "cannot run " + binary + ": " + std::strerror(error) +
                         (error == ENOENT ? "; install rdmaemu again"
                                          : "; is a limit reached (ulimit -u, -v)?"));
  }
  return status && ExitStatus(*status) == 0;
}

// Returns a connection that keeps the host alive. On failure prints the error and returns the exit
// status.
tl::expected<runtime::HostClient, int> JoinHost(const runtime::Registry& registry,
                                                const runtime::HostOptions& options, HostLog& log) {
  const std::string binary = BinaryPath();
  int error = 0;
  for (int attempt = 0; attempt < kStartAttempts; attempt++) {
    if (!EnsureHost(registry, binary, options)) return tl::unexpected(kRunFailed);
    auto client = runtime::HostClient::Connect(registry.SocketPath(options.name));
    const Status joined =
        client ? client->Hello("rdmaemu run") : rdmaemu::Fail(client.error().code);
    if (joined) {
      log.Joined(client->host_pid());
      return std::move(*client);
    }
    error = joined.error().code;
    if (error == EPROTO) {
      return tl::unexpected(Fail(kRunFailed, VersionMessage(options.name, client->host_pid())));
    }
  }
  log.Print(true);
  return tl::unexpected(Fail(kRunFailed, "cannot connect to host " + options.name + ": " +
                                             std::strerror(error) +
                                             "; is a limit reached (ulimit -f, -n, -v)?"));
}

// Prints the seed of the host on which the program ran. Another host may have its name now.
void PrintSeed(const runtime::Registry& registry, const std::string& name,
               const runtime::HostClient& client) {
  const auto record = registry.ReadRecord(name);
  if (!record || record->pid != client.host_pid() || record->seed.empty()) return;
  fprintf(stderr, "note: the seed of host %s was %s; --seed repeats its choices\n", name.c_str(),
          record->seed.c_str());
}

}  // namespace

int Run(const RunRequest& request) {
  runtime::HostOptions options = request.options;
  std::optional<PrivateRegistry> own;
  if (request.is_private) {
    auto made = PrivateRegistry::Make(options);
    if (!made) return Fail(kRunFailed, made.error());
    own.emplace(std::move(*made));
  }
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kRunFailed, registry.error());
  if (const std::string refused = runtime::WhyMemoryIsRefused(); !refused.empty()) {
    return Fail(kRunFailed, refused);
  }
  std::optional<ProgramTrace> program_trace;
  if (!request.program_trace.path.empty()) {
    auto begun = ProgramTrace::Begin(request.program_trace.path, request.program_trace.limit_bytes,
                                     request.program_trace.hashes_payloads);
    if (!begun) return Fail(kRunFailed, begun.error());
    program_trace.emplace(std::move(*begun));
  }
  std::optional<Checks> checks;
  if (request.checks.is_wanted) {
    auto begun = Checks::Begin(request.checks);
    if (!begun) return Fail(kRunFailed, begun.error());
    checks.emplace(std::move(*begun));
  }
  const Layer layer{.recording = program_trace ? program_trace->directory() : "",
                    .checks = checks ? checks->directory() : ""};
  const auto environment = ProgramEnvironment(*registry, options, layer);
  if (!environment) return Fail(kRunFailed, environment.error());
  std::optional<Replay> replay;
  if (!request.replay_path.empty()) {
    auto opened = Replay::Open(request.replay_path, *registry, options);
    if (!opened) return Fail(kRunFailed, opened.error());
    replay = std::move(*opened);
  }
  // Only the options given here apply to the host, not those of an outer `env`.
  for (const std::string& name : OptionVariables()) unsetenv(name.c_str());
  HostLog log(*registry, options.name);
  auto client = JoinHost(*registry, options, log);
  if (!client) return client.error();
  Apply(*environment);
  Apply({{kHostOfRunVariable, options.name}});

  std::function<void()> look;
  if (replay || checks) {
    look = [&] {
      if (replay) replay->Look();
      if (checks) checks->Look();
    };
  }
  std::optional<DeviceFiles> files;
  auto opened = DeviceFiles::Open(request.sysfs, registry->SocketPath(options.name));
  if (!opened) return Fail(kRunFailed, opened.error());
  files.emplace(std::move(*opened));
  Apply(files->environment());
  const auto enter = [&] { return files->Enter(); };
  const auto ended = Supervised(request.command, look, enter);
  files.reset();
  if (!ended) return ended.error();
  const int status = ExitStatus(ended->wait_status);
  const bool is_traced =
      !program_trace || PrintErrors(program_trace->End(ended->process, ended->wait_status));
  const Checks::Result checked = checks ? checks->End(status) : Checks::Result{};
  const bool is_checked = PrintErrors(checked.errors);
  // Also reports rules that others added. If the host has ended, its rules are unknown. This is
  // reported only if rules were requested.
  const bool all_fired =
      ReportUnfired(*registry, options.name, *client,
                    !options.scenario_path.empty() || request.strict, request.strict);
  const bool is_same = !replay || replay->Report(*client);
  if (request.at_end) request.at_end(*registry, *client);
  const bool is_whole = ReportCutFiles(*client, log, *registry, options);
  const bool started = status != kNotFound && status != kNotExecutable;
  log.Print(status != 0 && started);
  if (status != 0) {
    if (started) PrintSeed(*registry, options.name, *client);
    return status;
  }
  if (!is_whole || !is_traced || !is_checked) return kRunFailed;
  if (request.strict && !all_fired) return kRuleNeverFired;
  if (!is_same) return kRunDeparted;
  return request.checks.is_error && checked.has_findings ? kCheckFailed : 0;
}

}  // namespace rdmaemu::cli
