// `rdmaemu hosts`: lists running hosts by the status of each host's socket, once or until the user
// ends the command.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "emulator/runtime/host_client.h"
#include "tools/cli/commands.h"
#include "tools/cli/device_text.h"
#include "tools/cli/duration.h"
#include "tools/cli/running_host.h"
#include "tools/cli/watch/host_poll.h"
#include "tools/cli/watch/watch.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns null if nobody listens (a dead host left its socket), or if the host does not reply.
Json AskHost(const runtime::Registry& registry, const std::string& name) {
  auto client = runtime::HostClient::Connect(registry.SocketPath(name));
  if (!client) return {};
  const Result<std::string> status = client->Status();
  if (!status) {
    fprintf(stderr, "warning: host %s (pid %d) does not answer\n", name.c_str(),
            static_cast<int>(client->host_pid()));
    return {};
  }
  return ParseStatus(*status);
}

std::string Count(size_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

void PrintHost(const Json& host) {
  printf("host %s (pid %u): %s, %s, %s\n", host.value("name", "?").c_str(), host.value("pid", 0u),
         Count(host["clients"].size(), "client").c_str(),
         Count(host.value("ids", size_t{0}), "id").c_str(),
         Count(host.value("qps", size_t{0}), "QP").c_str());
  for (const Json& device : host.value("devices", Json::array())) {
    printf("  device %s\n", DeviceText(device).c_str());
  }
  for (const Json& client : host["clients"]) {
    printf("  client %u: %s\n", client.value("pid", 0u), client.value("program", "?").c_str());
  }
}

}  // namespace

std::string DeviceText(const Json& device) {
  std::string addresses, inside;
  const Json on_wire = device.value("on_wire", Json::array());
  for (const Json& address : device.value("addresses", Json::array())) {
    const bool reachable = std::find(on_wire.begin(), on_wire.end(), address) != on_wire.end();
    (reachable ? addresses : inside) += " " + address.get<std::string>();
  }
  std::string text = device.value("name", "?") + " (" + device.value("profile", "?");
  if (!device.value("present", true)) {
    text += ", removed";
  } else if (device.value("port", "active") != "active") {
    text += ", port down";
  }
  return text + "):" + addresses + (inside.empty() ? "" : "; inside only:") + inside;
}

int Hosts(const std::string& only, bool json) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  Json hosts = Json::array();
  for (const std::string& name : registry->Names()) {
    if (!only.empty() && name != only) continue;
    Json host = AskHost(*registry, name);
    if (!host.is_null()) hosts.push_back(std::move(host));
  }
  if (json) printf("%s\n", hosts.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  if (hosts.empty() && !only.empty()) return Fail(kFailed, NotRunningMessage(*registry, only));
  if (json) return 0;
  for (const Json& host : hosts) PrintHost(host);
  if (hosts.empty()) printf("no host is running in %s\n", registry->directory().c_str());
  return 0;
}

int HostsWatch(const std::string& only, const std::string& interval, bool json) {
  const std::optional<Duration> parsed = ParseDuration(interval);
  if (!parsed) return Fail(kUsage, NotADuration(interval));
  if (*parsed < kMinWatchInterval || *parsed > kMaxWatchInterval) {
    return Fail(kUsage, "--interval " + interval + " is outside the bounds; give 100ms to 1h");
  }
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  const auto ended = WatchHosts(*registry, {only, *parsed, json});
  return ended ? *ended : Fail(kFailed, ended.error());
}

}  // namespace rdmaemu::cli
