// `rdmaemu run --backend system`: runs a program on the machine's own rdma-core and device.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/system_devices.h"

namespace rdmaemu::cli {

int RunOnSystem(const std::vector<std::string>& devices, const std::vector<std::string>& command) {
  if (devices.size() > 1 || (!devices.empty() && devices[0].find('=') != std::string::npos)) {
    return Fail(kRunFailed,
                "--backend system takes one --device NAME, of those that the machine has");
  }
  const std::string device = devices.empty() ? "" : devices[0];
  const auto warnings = CheckSystemDevices({}, device);
  if (!warnings) return Fail(kRunFailed, warnings.error());
  for (const std::string& warning : *warnings) fprintf(stderr, "warning: %s\n", warning.c_str());
  const auto environment = SystemEnvironment(device);
  if (!environment) return Fail(kRunFailed, environment.error());
  for (const auto& [name, value] : *environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  fflush(nullptr);
  Execute(command);
}

}  // namespace rdmaemu::cli
