// `rdmaemu wait`: waits until a host's program listens, its device is present or an event has
// happened.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "emulator/base/cm_event_names.h"
#include "emulator/runtime/host_client.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The pause between two requests for the host's status doubles up to kLongestPause. Each request
// opens its own connection, because an open connection keeps the host alive.
constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(50);

constexpr uint32_t kCmEvents = 20;  // number of rdma_cm_event_type values, with librdmacm's own

std::string Upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// Returns the full name of an event given with or without its prefix, in any case. Empty: unknown.
std::string EventOfName(const std::string& name) {
  const std::string wanted = Upper(name);
  const auto is = [&](const std::string& full, const char* prefix) {
    return full == wanted || full == prefix + wanted;
  };
  for (uint32_t i = 0; i < kCmEvents; i++) {
    if (is(CmEventName(i), "RDMA_CM_EVENT_")) return CmEventName(i);
  }
  return {};
}

// Returns the first unmet condition as the end of a sentence that begins with "host a ". Empty if
// all conditions hold.
std::string Missing(const WaitRequest& request, const std::string& event, const Json& status) {
  if (request.listening) {
    std::string ports;
    bool listens = false;
    for (const Json& each : status.value("listeners", Json::array())) {
      const uint32_t port = each.value("port", 0u);
      listens |= port == *request.listening;
      ports += (ports.empty() ? "" : ", ") + std::to_string(port);
    }
    if (!listens) {
      return "has no program that listens on port " + std::to_string(*request.listening) +
             "; it has listeners on: " + (ports.empty() ? "none" : ports);
    }
  }
  if (request.device) {
    std::string names, port;
    for (const Json& each : status.value("devices", Json::array())) {
      if (!each.value("present", false)) continue;
      const std::string name = each.value("name", "");
      if (name == *request.device) port = each.value("port", "");
      names += (names.empty() ? "" : ", ") + name;
    }
    if (port.empty()) {
      return "has no device " + *request.device + "; it has: " + (names.empty() ? "none" : names);
    }
    if (port != "active") return "has device " + *request.device + ", whose port is " + port;
  }
  if (!event.empty()) {
    const auto count = status.value("events", Json::object()).value(event, uint64_t{0});
    if (count < request.times.value_or(1)) {
      return "delivered " + event + " " + std::to_string(count) + " of " +
             std::to_string(request.times.value_or(1)) + " times";
    }
  }
  return {};
}

struct Look {
  Json status;             // null: no host runs, or it does not reply
  std::string condition;   // the first one that does not hold; empty when all hold
  bool is_silent = false;  // a host runs and did not reply in time
};

// Asks the host for its status, for at most `limit`.
Look LookAt(const runtime::Registry& registry, const WaitRequest& request, const std::string& event,
            Duration limit) {
  auto client = runtime::HostClient::Connect(registry.SocketPath(request.host));
  if (!client) return {{}, NotRunningMessage(registry, request.host)};
  const Result<std::string> status = client->Status(limit);
  Json json = status ? Json::parse(*status, nullptr, false) : Json();
  if (!json.is_object()) return {{}, HungMessage(request.host, client->host_pid()), true};
  const std::string missing = Missing(request, event, json);
  return {std::move(json), missing.empty() ? "" : "host " + request.host + " " + missing};
}

// Returns what is missing when the time is up. The last request may have had little time, so a host
// that replied shortly before it is not reported as hung.
std::string ConditionAtTheEnd(const Look& last, const std::string& answered,
                              Clock::duration silence) {
  if (!last.is_silent || answered.empty() || silence >= runtime::HostClient::kTimeout) {
    return last.condition;
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  return answered + "; its last reply is " + std::to_string(ms) + " ms old";
}

}  // namespace

int Wait(const WaitRequest& request) {
  const std::optional<Duration> limit = ParseDuration(request.timeout);
  if (!limit) return Fail(kUsage, NotADuration(request.timeout));
  if (request.device && request.device->empty()) {
    // An unset variable of a script must not turn this into an unconditional wait.
    return Fail(kUsage, "--device is empty; name a device, or omit the option");
  }
  const std::string event = request.event ? EventOfName(*request.event) : "";
  if (event.empty() && request.event) {
    return Fail(kUsage, "there is no event \"" + *request.event +
                            "\"; name one of rdma_get_cm_event(3), such as ESTABLISHED");
  }
  if (request.times && !request.event) {
    return Fail(kUsage, "--times counts an event; add --event NAME");
  }
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  const auto start = Clock::now();
  std::string answered;  // the condition of the last look that had a reply, at `answered_at`
  Clock::time_point answered_at = start;
  for (Clock::duration pause = kFirstPause;;
       pause = std::min<Clock::duration>(pause * 2, kLongestPause)) {
    const auto before = *limit - (Clock::now() - start);
    const Look found = LookAt(*registry, request, event,
                              std::clamp<Duration>(before, runtime::HostClient::kAnswerTime,
                                                   runtime::HostClient::kTimeout));
    if (found.condition.empty()) {
      if (request.json) {
        printf("%s\n", found.status.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
      }
      return 0;
    }
    if (!found.is_silent) {
      answered = found.status.is_object() ? found.condition : "";
      answered_at = Clock::now();
    }
    const auto left = *limit - (Clock::now() - start);
    if (left <= Clock::duration::zero()) {
      return Fail(kTimedOut, "waited " + request.timeout + ": " +
                                 ConditionAtTheEnd(found, answered, Clock::now() - answered_at));
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, left));
  }
}

}  // namespace rdmaemu::cli
