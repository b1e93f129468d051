// `rdmaemu run --backend system`: runs a program on the machine's own rdma-core and device.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/program_trace/convert.h"
#include "tools/cli/running_host.h"
#include "tools/cli/supervise.h"
#include "tools/cli/system_devices.h"
#include "tools/cli/system_host/system_host.h"

namespace rdmaemu::cli {
namespace {

// Prints the rules that never fired. Returns whether all fired.
bool ReportRules(const runtime::Registry& registry, const SystemRequest& request) {
  auto client = runtime::HostClient::Connect(registry.SocketPath(request.options.name));
  return client &&
         ReportUnfired(registry, request.options.name, *client, request.strict, request.strict);
}

}  // namespace

int RunOnSystem(const SystemRequest& request) {
  const std::vector<std::string>& devices = request.options.devices;
  if (!devices.empty() && devices[0].find('@') != std::string::npos) {
    return Fail(kRunFailed, "--device " + devices[0] +
                                " names addresses after '@', and --backend system uses the"
                                " machine's own addresses; give --device NAME alone");
  }
  if (devices.size() > 1 || (!devices.empty() && devices[0].find('=') != std::string::npos)) {
    return Fail(kRunFailed,
                "--backend system takes one --device NAME, of those that the machine has");
  }
  const std::string device = devices.empty() ? "" : devices[0];
  if (!HasSystemLibraries()) {
    const auto warnings = CheckSystemDevices({}, device);
    if (!warnings) return Fail(kRunFailed, warnings.error());
    for (const std::string& warning : *warnings) fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  std::optional<ProgramTrace> trace;
  if (!request.program_trace.path.empty()) {
    auto begun = ProgramTrace::Begin(request.program_trace.path, request.program_trace.limit_bytes,
                                     request.program_trace.hashes_payloads);
    if (!begun) return Fail(kRunFailed, begun.error());
    trace.emplace(std::move(*begun));
  }
  std::optional<Checks> checks;
  if (request.checks.is_wanted) {
    auto begun = Checks::Begin(request.checks);
    if (!begun) return Fail(kRunFailed, begun.error());
    checks.emplace(std::move(*begun));
  }
  const auto registry = runtime::Registry::Open();
  std::unique_ptr<SystemHost> host;
  if (request.has_rules) {
    if (!registry) return Fail(kRunFailed, registry.error());
    auto started = SystemHost::Start(*registry, request.options);
    if (!started) return Fail(kRunFailed, started.error());
    host = std::move(*started);
  }
  const auto environment = SystemEnvironment({.device = device,
                                              .recording = trace ? trace->directory() : "",
                                              .checks = checks ? checks->directory() : "",
                                              .faults_socket = host ? host->socket_path() : "",
                                              .faults_doors = host ? host->doors_path() : ""});
  if (!environment) return Fail(kRunFailed, environment.error());
  Apply(*environment);
  fflush(nullptr);
  if (!trace && !checks && !host) Execute(request.command);
  std::function<void()> look;
  if (checks) look = [&] { checks->Look(); };
  const auto ended = Supervised(request.command, look);
  if (!ended) return ended.error();
  const int status = ExitStatus(ended->wait_status);
  const bool is_traced = !trace || PrintErrors(trace->End(ended->process, ended->wait_status));
  const Checks::Result checked = checks ? checks->End(status) : Checks::Result{};
  const bool is_checked = PrintErrors(checked.errors);
  const bool all_fired = !host || ReportRules(*registry, request);
  if (status != 0 && host) {
    fprintf(stderr, "note: the seed of host %s was %s; --seed repeats its choices\n",
            request.options.name.c_str(), host->seed().c_str());
  }
  if (status != 0) return status;
  if (!is_traced || !is_checked) return kRunFailed;
  if (request.strict && !all_fired) return kRuleNeverFired;
  return request.checks.is_error && checked.has_findings ? kCheckFailed : 0;
}

}  // namespace rdmaemu::cli
