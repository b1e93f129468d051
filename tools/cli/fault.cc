// `rdmaemu fault`: the rules of a running host.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::json;

// These give the exit status after an error was printed.
tl::expected<runtime::HostClient, int> Connect(const std::string& host) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return tl::unexpected(Fail(kFailed, registry.error()));
  auto client = runtime::HostClient::Connect(registry->SocketPath(host));
  if (!client) return tl::unexpected(Fail(kFailed, NotRunningMessage(*registry, host)));
  return std::move(*client);
}

tl::expected<Json, int> Parsed(const std::string& host, const runtime::HostClient& client,
                               const std::string& answer) {
  Json json = Json::parse(answer, nullptr, false);
  if (json.is_discarded()) {
    return tl::unexpected(Fail(kFailed, VersionMessage(host, client.host_pid())));
  }
  if (json.is_object() && json.contains("error")) {
    return tl::unexpected(Fail(kFailed, json.at("error").get<std::string>()));
  }
  return json;
}

tl::expected<Json, int> Ask(const std::string& host, CallOp op, const std::string& text) {
  auto client = Connect(host);
  if (!client) return tl::unexpected(client.error());
  const Result<std::string> answer = client->Fault(op, text);
  if (answer) return Parsed(host, *client, *answer);
  return tl::unexpected(Fail(kFailed, answer.error().code == ETIMEDOUT
                                          ? HungMessage(host, client->host_pid())
                                          : VersionMessage(host, client->host_pid())));
}

void PrintTable(const Json& list) {
  size_t name = 4, at = 2, does = 4;
  for (const Json& rule : list) {
    name = std::max(name, rule.value("name", "").size());
    at = std::max(at, rule.value("at", "").size());
    does = std::max(does, rule.value("does", "").size());
  }
  const auto row = [&](const std::string& a, const std::string& b, const std::string& c,
                       const std::string& matched, const std::string& fired,
                       const std::string& held) {
    printf("%-*s  %-*s  %-*s  %8s  %6s  %4s\n", static_cast<int>(name), a.c_str(),
           static_cast<int>(at), b.c_str(), static_cast<int>(does), c.c_str(), matched.c_str(),
           fired.c_str(), held.c_str());
  };
  const auto number = [](const Json& rule, const char* key) {
    return rule.contains(key) ? std::to_string(rule.value(key, 0ull)) : "-";
  };
  row("name", "at", "does", "matched", "fired", "held");
  for (const Json& rule : list) {
    row(rule.value("name", ""), rule.value("at", ""), rule.value("does", ""),
        number(rule, "matched"), number(rule, "fired"), number(rule, "held"));
  }
}

}  // namespace

int FaultAdd(const std::string& host, const std::string& rule) {
  const auto answer = Ask(host, CallOp::kFaultAdd, rule);
  if (!answer) return answer.error();
  printf("%s\n", answer->value("name", "").c_str());
  return 0;
}

int FaultList(const std::string& host, bool json) {
  const auto answer = Ask(host, CallOp::kFaultList, {});
  if (!answer) return answer.error();
  if (json) {
    printf("%s\n", answer->dump(2).c_str());
  } else {
    PrintTable(*answer);
  }
  return 0;
}

int FaultRemove(const std::string& host, const std::string& name) {
  const auto answer = Ask(host, CallOp::kFaultRemove, name);
  return answer ? 0 : answer.error();
}

int FaultRelease(const std::string& host, const std::string& name) {
  const auto answer = Ask(host, CallOp::kFaultRelease, name);
  return answer ? 0 : answer.error();
}

int FaultWait(const std::string& host, const std::string& name, uint64_t times,
              const std::string& timeout) {
  const std::optional<Duration> limit = ParseDuration(timeout);
  if (!limit) return Fail(kUsage, NotADuration(timeout));
  auto client = Connect(host);
  if (!client) return client.error();
  const Result<std::string> answer = client->WaitForRule(name, times, *limit);
  if (answer) {
    const auto fired = Parsed(host, *client, *answer);
    return fired ? 0 : fired.error();
  }
  switch (answer.error().code) {
    case ETIMEDOUT:
      return Fail(kTimedOut, "rule \"" + name + "\" has not fired " + std::to_string(times) +
                                 (times == 1 ? " time" : " times") + " within " + timeout +
                                 "; see rdmaemu fault list");
    case ECONNRESET:
      return Fail(kFailed, "host " + host + " ended before rule \"" + name + "\" had fired");
    default:
      return Fail(kFailed, VersionMessage(host, client->host_pid()));
  }
}

int FaultClear(const std::string& host) {
  const auto answer = Ask(host, CallOp::kFaultClear, {});
  return answer ? 0 : answer.error();
}

bool ReportUnfired(runtime::HostClient& client, bool expects_host) {
  const Result<std::string> answer = client.Fault(CallOp::kFaultList, {});
  const Json list = answer ? Json::parse(*answer, nullptr, false) : Json();
  if (!list.is_array()) {
    if (!expects_host) return true;
    fprintf(stderr, "warning: the host has gone, and which rules fired with it\n");
    return false;
  }
  bool all_fired = true;
  for (const Json& rule : list) {
    if (rule.value("fired", 0ull) > 0) continue;
    all_fired = false;
    fprintf(stderr, "warning: rule \"%s\" never fired; it matched %llu times at %s\n",
            rule.value("name", "").c_str(), rule.value("matched", 0ull),
            rule.value("at", "").c_str());
  }
  return all_fired;
}

}  // namespace rdmaemu::cli
