#include "tools/cli/running_host.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "emulator/base/net_address.h"
#include "emulator/runtime/host_setup.h"

namespace rdmaemu::cli {
namespace {

using Clock = std::chrono::steady_clock;
using SortedJson = nlohmann::json;

// How long a host may take to start or to end.
constexpr auto kChangeLimit = std::chrono::seconds(10);
constexpr auto kHostPollInterval = std::chrono::milliseconds(2);

// Normalises equivalent forms: "rxe0" and "rxe0=rxe", "::1" and "0:0::1".
std::string NormalDevice(const std::string& text) {
  const size_t at = std::min(text.find('@'), text.size());
  const bool has_profile = text.substr(0, at).find('=') != text.npos;
  return text.substr(0, at) + (has_profile ? "" : "=rxe") + text.substr(at);
}
std::string NormalAddress(const std::string& text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const auto address = NetAddress::Parse(text.substr(0, slash));
  return address ? address->ToString() + text.substr(slash) : text;
}
// Normalises an address without the prefix of its network.
std::string NormalWithoutPrefix(const std::string& text) {
  return NormalAddress(text.substr(0, text.find('/')));
}

std::string Joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

template <class Normal>
void CompareLists(const char* option, const std::vector<std::string>& asked,
                  const std::vector<std::string>& running, Normal normal,
                  std::vector<std::string>& differences) {
  if (asked.empty()) return;
  const auto normalised = [&](std::vector<std::string> list) {
    std::transform(list.begin(), list.end(), list.begin(), normal);
    return list;
  };
  if (normalised(asked) == normalised(running)) return;
  differences.push_back(std::string(option) + " " +
                        (running.empty() ? "(default)" : Joined(running, ", ")) + " instead of " +
                        Joined(asked, ", "));
}

void CompareFiles(const char* option, const std::string& asked, const std::string& running,
                  std::vector<std::string>& differences) {
  if (asked.empty() || asked == running) return;
  differences.push_back(std::string(option) + " " + (running.empty() ? "(none)" : running) +
                        " instead of " + asked);
}

// The number of clients that a note names individually.
constexpr size_t kNamedClients = 4;

struct RunningState {
  size_t clients = 0;
  std::string client_names;  // "rping (pid 12), rping (pid 13)"
  std::vector<std::string> on_wire;
  bool same_version = false;
  bool is_of_system = false;  // of `rdmaemu run --backend system`
};

std::string OfSystemMessage(const std::string& name, pid_t pid) {
  return "host " + name + " (pid " + std::to_string(pid) +
         ") is of rdmaemu run --backend system and ends with its program; use another --host";
}

RunningState ParseState(const std::string& status) {
  const SortedJson json = SortedJson::parse(status, nullptr, false);
  RunningState state;
  if (!json.is_object()) return state;
  state.is_of_system = json.value("backend", "") == "system";
  state.same_version = json.value("call_version", 0u) == kCallVersion;
  for (const SortedJson& client : json.value("clients", SortedJson::array())) {
    if (client.value("group", 0u) == 0) continue;
    if (++state.clients > kNamedClients) continue;
    if (state.clients > 1) state.client_names += ", ";
    state.client_names +=
        client.value("program", "?") + " (pid " + std::to_string(client.value("pid", 0u)) + ")";
  }
  if (state.clients > kNamedClients) {
    state.client_names += " and " + std::to_string(state.clients - kNamedClients) + " others";
  }
  for (const SortedJson& device : json.value("devices", SortedJson::array())) {
    for (const SortedJson& address : device.value("on_wire", SortedJson::array())) {
      state.on_wire.push_back(address.get<std::string>());
    }
  }
  return state;
}

// Returns how the host is used. Returns "" if it is unused.
std::string WhoseHost(const RunningState& state, const std::optional<runtime::HostRecord>& record,
                      runtime::HostClient& client) {
  if (state.clients > 0) return "is in use by " + state.client_names;
  if (!record) return {};
  if (record->lives_alone) return "was started by `rdmaemu host`";
  const Result<std::string> rules = client.Fault(CallOp::kFaultList, {});
  const SortedJson list = rules ? SortedJson::parse(*rules, nullptr, false) : SortedJson();
  return list.is_array() && list.size() > record->scenario_rules ? "has rules of `fault add`" : "";
}

// Stops a host that runs with other options, or returns why it must not be stopped.
runtime::OrMessage<void> EndOther(const runtime::Registry& registry, const std::string& name,
                                  const RunningState& state,
                                  const std::optional<runtime::HostRecord>& record,
                                  const std::vector<std::string>& differences,
                                  runtime::HostClient& client) {
  const std::string who = "host " + name + " (pid " + std::to_string(client.host_pid()) + ")";
  if (!state.same_version) {
    if (state.clients > 0) return tl::unexpected(VersionMessage(name, client.host_pid()));
  } else if (const std::string whose = WhoseHost(state, record, client); !whose.empty()) {
    return tl::unexpected(who + " " + whose + " and runs with " + Joined(differences, ", ") +
                          "; stop it with: rdmaemu stop " + name + ", or use another --host");
  }
  const runtime::OrMessage<void> stopped = StopAndWait(registry, name, client);
  if (!stopped) return stopped;
  fprintf(stderr,
          "note: %s was idle and has been stopped, because %s; its rules and state are lost\n",
          who.c_str(),
          state.same_version ? ("it ran with " + Joined(differences, ", ")).c_str()
                             : "it ran another version of rdmaemu");
  return {};
}

// The addresses with which a host starts.
runtime::OrMessage<std::vector<std::string>> AddressesOf(const runtime::HostOptions& options) {
  std::vector<std::string> addresses = options.addresses;
  for (const std::string& device : options.devices) {
    const auto parsed = runtime::ParseDeviceOption(device);
    if (!parsed) return tl::unexpected(parsed.error());
    addresses.insert(addresses.end(), parsed->addresses.begin(), parsed->addresses.end());
  }
  if (addresses.empty()) addresses = {"127.0.0.1", "::1"};
  for (std::string& address : addresses) address = NormalWithoutPrefix(address);
  return addresses;
}

// Returns true if the host started without the addresses. It has one of them only if it got a
// device later. So nobody waits long for such a host, which may be stopped in a debugger.
bool BeganWithout(const std::optional<runtime::HostRecord>& record,
                  const std::vector<std::string>& addresses) {
  if (!record) return false;
  const auto its = AddressesOf(record->options);
  return its && std::ranges::find_first_of(addresses, *its) == addresses.end();
}

}  // namespace

std::vector<std::string> Differences(const runtime::HostOptions& asked,
                                     const runtime::HostRecord& record) {
  const runtime::HostOptions& running = record.options;
  std::vector<std::string> differences;
  CompareLists("address", asked.addresses, running.addresses, NormalAddress, differences);
  CompareLists("device", asked.devices, running.devices, NormalDevice, differences);
  const auto as_given = [](const std::string& net) { return net; };
  CompareLists("silent-net", asked.silent_nets, running.silent_nets, as_given, differences);
  CompareLists("gateway", asked.gateways, running.gateways, NormalAddress, differences);
  CompareFiles("pcap", asked.pcap_path, running.pcap_path, differences);
  CompareFiles("trace", asked.trace_path, running.trace_path, differences);
  CompareFiles("scenario", asked.scenario_path, running.scenario_path, differences);
  if (!asked.scenario_path.empty() && asked.scenario_path == running.scenario_path &&
      runtime::ScenarioMark(asked.scenario_path) != record.scenario_mark) {
    differences.push_back("scenario " + running.scenario_path + " as it was before it was changed");
  }
  if (asked.clock != "real" || !running.clock.empty()) {
    CompareFiles("clock", asked.clock, running.clock, differences);
  }
  CompareFiles("seed", asked.seed, running.seed, differences);
  if (asked.payload_shortcuts != "on" || !running.payload_shortcuts.empty()) {
    CompareFiles("payload-shortcuts", asked.payload_shortcuts, running.payload_shortcuts,
                 differences);
  }
  if (asked.wire != "shared" || !running.wire.empty()) {
    CompareFiles("wire", asked.wire, running.wire, differences);
  }
  return differences;
}

std::string VersionMessage(const std::string& name, pid_t pid) {
  return "host " + name + " (pid " + std::to_string(pid) +
         ") was started by another version of rdmaemu; stop it with: rdmaemu stop " + name;
}

std::string NotRunningMessage(const runtime::Registry& registry, const std::string& name) {
  std::vector<std::string> running;
  for (const std::string& other : registry.Names()) {
    if (runtime::HostClient::Connect(registry.SocketPath(other))) running.push_back(other);
  }
  return "no host " + name + " is running in " + registry.directory() +
         "; running: " + (running.empty() ? "none" : Joined(running, ", "));
}

std::string HungMessage(const std::string& name, pid_t pid) {
  return "host " + name + " (pid " + std::to_string(pid) +
         ") does not answer; end it with: kill -9 " + std::to_string(pid);
}

bool AwaitEnd(const runtime::Registry& registry, const std::string& name, pid_t pid) {
  for (const auto deadline = Clock::now() + kChangeLimit; Clock::now() < deadline;) {
    const auto record = registry.ReadRecord(name);
    if (!record || record->pid != pid || registry.TryLock(name)) return true;
    std::this_thread::sleep_for(kHostPollInterval);
  }
  return false;
}

runtime::OrMessage<void> StopAndWait(const runtime::Registry& registry, const std::string& name,
                                     runtime::HostClient& client) {
  const pid_t pid = client.host_pid();
  // A connection that ends without an answer means that the host stops, too.
  const Status asked = client.Stop();
  if (!asked && asked.error().code == ETIMEDOUT) return tl::unexpected(HungMessage(name, pid));
  if (!asked && asked.error().code == EOPNOTSUPP) {
    return tl::unexpected(OfSystemMessage(name, pid));
  }
  if (AwaitEnd(registry, name, pid)) return {};
  return tl::unexpected(HungMessage(name, pid));
}

runtime::OrMessage<void> FreeAddresses(const runtime::Registry& registry,
                                       const runtime::HostOptions& options) {
  const auto wanted = AddressesOf(options);
  if (!wanted) return tl::unexpected(wanted.error());
  for (const std::string& name : registry.Names()) {
    if (name == options.name) continue;
    auto client = runtime::HostClient::Connect(registry.SocketPath(name));
    if (!client) continue;
    const auto record = registry.ReadRecord(name);
    const Result<std::string> status =
        client->Status(BeganWithout(record, *wanted) ? runtime::HostClient::kAnswerTime
                                                     : runtime::HostClient::kTimeout);
    if (!status) continue;
    const RunningState state = ParseState(*status);
    const auto held = std::ranges::find_first_of(*wanted, state.on_wire);
    if (held == wanted->end() || !WhoseHost(state, record, *client).empty()) continue;
    const pid_t pid = client->host_pid();
    if (const auto stopped = StopAndWait(registry, name, *client); !stopped) return stopped;
    fprintf(stderr,
            "note: host %s (pid %d) was idle and has been stopped, because it used the address %s, "
            "which host %s needs; its rules and state are lost\n",
            name.c_str(), static_cast<int>(pid), held->c_str(), options.name.c_str());
  }
  return {};
}

void NoteSharing(const std::string& name, const Decision& running) {
  if (running.shared_with.empty()) return;
  fprintf(stderr, "note: host %s (pid %d) runs already and %s\n", name.c_str(),
          static_cast<int>(running.pid), running.shared_with.c_str());
}

runtime::OrMessage<Decision> FindOrLock(const runtime::Registry& registry,
                                        const runtime::HostOptions& options) {
  const std::string& name = options.name;
  for (const auto deadline = Clock::now() + kChangeLimit; Clock::now() < deadline;) {
    if (auto client = runtime::HostClient::Connect(registry.SocketPath(name))) {
      const Result<std::string> status = client->Status();
      if (!status && status.error().code == ETIMEDOUT) {
        return tl::unexpected(HungMessage(name, client->host_pid()));
      }
      if (!status) continue;  // it ended in between
      const RunningState state = ParseState(*status);
      if (state.is_of_system) return tl::unexpected(OfSystemMessage(name, client->host_pid()));
      const auto record = registry.ReadRecord(name);
      std::vector<std::string> differences;
      if (record) differences = Differences(options, *record);
      if (differences.empty() && state.same_version) {
        return Decision{true, {}, client->host_pid(), WhoseHost(state, record, *client)};
      }
      const auto ended = EndOther(registry, name, state, record, differences, *client);
      if (!ended) return tl::unexpected(ended.error());
      continue;
    }
    Result<runtime::UniqueFd> lock = registry.TryLock(name);
    if (lock) return Decision{false, std::move(*lock), 0, {}};
    if (lock.error().code != EWOULDBLOCK) {
      return tl::unexpected("cannot lock " + registry.LockPath(name) + ": " +
                            std::strerror(lock.error().code) +
                            "; set RDMAEMU_DIR to a directory of your own");
    }
    std::this_thread::sleep_for(kHostPollInterval);  // it is starting or ending
  }
  const auto record = registry.ReadRecord(name);
  if (record && record->pid > 0) return tl::unexpected(HungMessage(name, record->pid));
  return tl::unexpected(
      "host " + name +
      " is being started by another process and is not ready; find that process with: fuser " +
      registry.LockPath(name));
}

}  // namespace rdmaemu::cli
