// `rdmaemu stop`: stops a host, with or without clients.
#include <cstdio>

#include "tools/cli/commands.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {

int Stop(const std::string& name) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  auto client = runtime::HostClient::Connect(registry->SocketPath(name));
  if (!client) return Fail(kFailed, NotRunningMessage(*registry, name));
  const auto stopped = StopAndWait(*registry, name, *client);
  return stopped ? 0 : Fail(kFailed, stopped.error());
}

}  // namespace rdmaemu::cli
