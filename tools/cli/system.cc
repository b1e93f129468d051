// `rdmaemu run --backend system`: runs a program on the machine's own rdma-core and device.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/program_trace/convert.h"
#include "tools/cli/supervise.h"
#include "tools/cli/system_devices.h"

namespace rdmaemu::cli {

int RunOnSystem(const std::vector<std::string>& devices, const ProgramTraceRequest& request,
                const std::vector<std::string>& command) {
  if (devices.size() > 1 || (!devices.empty() && devices[0].find('=') != std::string::npos)) {
    return Fail(kRunFailed,
                "--backend system takes one --device NAME, of those that the machine has");
  }
  const std::string device = devices.empty() ? "" : devices[0];
  const auto warnings = CheckSystemDevices({}, device);
  if (!warnings) return Fail(kRunFailed, warnings.error());
  for (const std::string& warning : *warnings) fprintf(stderr, "warning: %s\n", warning.c_str());
  std::optional<ProgramTrace> trace;
  if (!request.path.empty()) {
    auto begun = ProgramTrace::Begin(request.path, request.limit_bytes);
    if (!begun) return Fail(kRunFailed, begun.error());
    trace.emplace(std::move(*begun));
  }
  const auto environment =
      SystemEnvironment({.device = device, .recording = trace ? trace->directory() : ""});
  if (!environment) return Fail(kRunFailed, environment.error());
  Apply(*environment);
  fflush(nullptr);
  if (!trace) Execute(command);
  const auto ended = Supervised(command, {});
  if (!ended) return ended.error();
  const int status = ExitStatus(ended->wait_status);
  const bool is_traced = PrintErrors(trace->End(ended->process, ended->wait_status));
  return status == 0 && !is_traced ? kRunFailed : status;
}

}  // namespace rdmaemu::cli
