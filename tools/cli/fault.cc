// `rdmaemu fault`: changes and lists the rules of a running host.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "emulator/fault/scenario.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

using SortedJson = nlohmann::json;

// These functions print an error and return the exit status.
tl::expected<runtime::HostClient, int> Connect(const std::string& host) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return tl::unexpected(Fail(kFailed, registry.error()));
  auto client = runtime::HostClient::Connect(registry->SocketPath(host));
  if (!client) return tl::unexpected(Fail(kFailed, NotRunningMessage(*registry, host)));
  return std::move(*client);
}

tl::expected<SortedJson, int> Parsed(const std::string& host, const runtime::HostClient& client,
                                     const std::string& answer) {
  SortedJson json = SortedJson::parse(answer, nullptr, false);
  if (json.is_discarded()) {
    return tl::unexpected(Fail(kFailed, VersionMessage(host, client.host_pid())));
  }
  if (json.is_object() && json.contains("error")) {
    return tl::unexpected(Fail(kFailed, json.at("error").get<std::string>()));
  }
  return json;
}

tl::expected<SortedJson, int> Ask(const std::string& host, CallOp op, const std::string& text) {
  auto client = Connect(host);
  if (!client) return tl::unexpected(client.error());
  const Result<std::string> answer = client->Fault(op, text);
  if (answer) return Parsed(host, *client, *answer);
  return tl::unexpected(Fail(kFailed, answer.error().code == ETIMEDOUT
                                          ? HungMessage(host, client->host_pid())
                                          : VersionMessage(host, client->host_pid())));
}

void PrintTable(const SortedJson& list) {
  size_t name = 4, at = 2, does = 4;
  for (const SortedJson& rule : list) {
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
  const auto number = [](const SortedJson& rule, const char* key) {
    return rule.contains(key) ? std::to_string(rule.value(key, 0ull)) : "-";
  };
  row("name", "at", "does", "matched", "fired", "held");
  for (const SortedJson& rule : list) {
    row(rule.value("name", ""), rule.value("at", ""), rule.value("does", ""),
        number(rule, "matched"), number(rule, "fired"), number(rule, "held"));
  }
}

}  // namespace

namespace {

// Returns text such as "; the host saw: 0 at wc.recv, 300 at wc.recv_rdma_with_imm".
std::string SeenText(const SortedJson& rule) {
  std::string text;
  for (const SortedJson& seen : rule.value("seen", SortedJson::array())) {
    text += text.empty() ? "; the host saw: " : ", ";
    text += std::to_string(seen.value("times", 0ull)) + " at " + seen.value("at", "");
  }
  return text;
}

}  // namespace

int FaultAdd(const std::string& host, const std::string& rule) {
  if (rule.size() > fault::kMaxRuleBytes) return Fail(kFailed, fault::RuleTooLong());
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
      return Fail(kFailed,
                  "host " + host + " ended before rule \"" + name +
                      "\" had fired; `rdmaemu host` starts a host that runs until `rdmaemu stop`");
    default:
      return Fail(kFailed, VersionMessage(host, client->host_pid()));
  }
}

int FaultClear(const std::string& host) {
  const auto answer = Ask(host, CallOp::kFaultClear, {});
  return answer ? 0 : answer.error();
}

bool ReportUnfired(const runtime::Registry& registry, const std::string& name,
                   runtime::HostClient& client, bool expects_host, bool is_error) {
  const char* const severity = is_error ? "error" : "warning";
  const Result<std::string> answer = client.Fault(CallOp::kFaultList, {});
  const std::optional<std::string> left =
      answer ? *answer : registry.ReadCrash(name, client.host_pid());
  const SortedJson list = left ? SortedJson::parse(*left, nullptr, false) : SortedJson();
  if (!list.is_array()) {
    if (!expects_host) return true;
    fprintf(stderr, "%s: the host has ended, so it is unknown which rules fired\n", severity);
    return false;
  }
  bool all_fired = true;
  for (const SortedJson& rule : list) {
    if (rule.value("fired", 0ull) > 0) continue;
    if (rule.value("name", "").starts_with(kSweepWitness)) continue;
    all_fired = false;
    fprintf(stderr, "%s: rule \"%s\" never fired; it matched %llu times at %s%s\n", severity,
            rule.value("name", "").c_str(), rule.value("matched", 0ull),
            rule.value("at", "").c_str(), SeenText(rule).c_str());
  }
  return all_fired;
}

}  // namespace rdmaemu::cli
