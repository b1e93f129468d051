// Functions of rdmaemu.h for fault rules of the host that the process uses. This is a host process,
// or the hosts in this process, whose rules form one list.

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/embedded/call_host.h"
#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"
#include "emulator/fault/grammar.h"
#include "emulator/fault/likely_faults.h"
#include "emulator/fault/scenario.h"
#include "emulator/host/faults/host_faults.h"
#include "rdmaemu/rdmaemu.h"

namespace rdmaemu::embedded {
namespace {

using Json = nlohmann::json;

// Parses a reply as JSON. If it is a refusal, stores the reason and returns its errno.
int TakeAnswer(CallOp op, const std::string& reply, Json& answer) {
  answer = Json::parse(reply, nullptr, false);
  if (answer.is_discarded()) return Refuse(EPROTO, "the host's answer is no JSON");
  if (answer.is_object() && answer.contains("error")) {
    const std::string why = answer["error"].get<std::string>();
    if (op != CallOp::kFaultAdd) return Refuse(ENOENT, why);
    return Refuse(answer.value("errno", EINVAL), why);
  }
  return 0;
}

// Makes one of the kFault* calls, whose replies are JSON.
int CallFault(CallOp op, std::string_view text, Json& answer) {
  if (text.size() > kMaxFaultTextBytes) {
    return op == CallOp::kFaultAdd
               ? Refuse(EMSGSIZE, fault::RuleTooLong())
               : Refuse(EMSGSIZE, "the name is longer than " + std::to_string(kMaxFaultTextBytes) +
                                      " bytes, which no rule's is");
  }
  std::string reply;
  const int error = CallHost(op, text.data(), text.size(), &reply);
  return error != 0 ? error : TakeAnswer(op, reply, answer);
}

// Returns 0, or a negative errno with the reason why a wait for a rule failed.
int RefuseWait(int error, const char* name) {
  const std::string rule = "rule \"" + std::string(name) + "\"";
  switch (error) {
    case 0:
      return 0;
    case ETIMEDOUT:
      return Refuse(
          error,
          rule +
              " has not fired that often in this time; rdmaemu_rules shows how often it matched");
    case EDEADLK:
      return Refuse(
          error,
          rule +
              " cannot fire any more: the only thread of this program waits, and no work is due");
    default:
      return Refuse(error, "the host ended before " + rule + " had fired");
  }
}

template <size_t N>
void CopyText(const Json& from, char (&to)[N]) {
  const std::string text = from.get<std::string>();
  to[text.copy(to, N - 1)] = '\0';
}

// The live hosts in this process. Empty if the host is another process.
struct Hosts {
  struct One {
    uint32_t number;
    std::string name;
  };
  std::vector<One> all;
  uint32_t entered = 0;
};
Hosts HostsHere() {
  Hosts hosts;
  ProcessHost::Get().With([&](EmbeddedHosts& here) {
    for (const auto& host : here.all()) {
      if (!host->has_ended()) hosts.all.push_back({host->number(), host->name()});
    }
    hosts.entered = ProcessHost::Get().entered();
    return 0;
  });
  return hosts;
}

// Calls `use` on each host here until it returns a value other than `again`.
template <class Use>
int OnEach(const Hosts& hosts, int again, Use&& use) {
  if (hosts.all.empty()) return use();
  int result = again;
  for (size_t i = 0; i < hosts.all.size() && result == again; i++) {
    const ThreadOnHost on(hosts.all[i].number);
    result = use();
  }
  return result;
}

// Lists the rules of all hosts, host by host.
int ListRules(const Hosts& hosts, Json& rules) {
  rules = Json::array();
  return OnEach(hosts, 0, [&] {
    Json answer;
    const int error = CallFault(CallOp::kFaultList, "", answer);
    if (error == 0) rules.insert(rules.end(), answer.begin(), answer.end());
    return error;
  });
}

// Deletes the firing counts of ended hosts, so that a new rule of the same name starts at 0.
void ForgetFired(std::optional<std::string_view> rule) {
  ProcessHost::Get().With([&](EmbeddedHosts& here) {
    here.ForgetFired(rule);
    return 0;
  });
}

uint64_t NextRuleNumber() {
  uint64_t number = 0;
  ProcessHost::Get().With([&](EmbeddedHosts& here) {
    number = here.NextRuleNumber();
    return 0;
  });
  return number;
}

// The host for a new rule, and the rule's text with a unique name.
struct NewRule {
  uint32_t host;
  std::string text;
};
// Chooses the host and the name. Returns 0 or a negative errno. Passes a malformed text on to its
// host, which reports the error.
int PlaceRule(const Hosts& hosts, NewRule& rule) {
  if (hosts.all.empty() || rule.text.size() > kMaxFaultTextBytes) return 0;
  uint64_t number = NextRuleNumber();
  auto parsed = fault::ParseRule(rule.text, number, FaultVocabulary());
  if (!parsed) return 0;
  const auto on = std::ranges::find(hosts.all, parsed->match.host, &Hosts::One::name);
  if (on != hosts.all.end()) rule.host = on->number;
  Json rules;
  if (const int error = ListRules(hosts, rules); error != 0) return error;
  const auto other_number = fault::ParseRule(rule.text, number + 1, FaultVocabulary());
  const bool is_unnamed = other_number && other_number->name != parsed->name;
  while (std::ranges::any_of(rules,
                             [&](const Json& other) { return other.at("name") == parsed->name; })) {
    if (!is_unnamed) {
      return Refuse(EINVAL, "there is a rule called \"" + parsed->name +
                                "\" already; remove it first, or choose another name");
    }
    number = NextRuleNumber();
    parsed = fault::ParseRule(rule.text, number, FaultVocabulary());
  }
  ForgetFired(parsed->name);
  if (is_unnamed) rule.text = "name = \"" + parsed->name + "\", " + rule.text;
  return 0;
}

// Makes kFaultRemove or kFaultRelease on all hosts that have a rule of that name. Hosts with the
// same scenario have the same rules.
int CallNamed(CallOp op, const char* name) {
  return AtDoor([&] {
    if (name == nullptr) return NoText("name");
    if (op == CallOp::kFaultRemove) ForgetFired(name);
    bool is_done = false;
    const int error = OnEach(HostsHere(), -ENOENT, [&] {
      Json answer;
      const int result = CallFault(op, name, answer);
      is_done |= result == 0;
      return result == 0 ? -ENOENT : result;
    });
    if (!is_done || error != -ENOENT) return error;
    LastError().clear();
    return 0;
  });
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_rule_add(const char* rule, char* name, size_t name_bytes) {
  return AtDoor([&] {
    if (rule == nullptr) return NoText("rule");
    const Hosts hosts = HostsHere();
    NewRule added{hosts.entered, rule};
    if (const int error = PlaceRule(hosts, added); error != 0) return error;
    Json answer;
    const ThreadOnHost on(added.host);
    const int error = CallFault(CallOp::kFaultAdd, added.text, answer);
    if (error != 0) return error;
    if (name != nullptr && name_bytes > 0) {
      const std::string text = answer.at("name").get<std::string>();
      name[text.copy(name, name_bytes - 1)] = '\0';
    }
    return 0;
  });
}

int rdmaemu_rule_remove(const char* name) { return CallNamed(CallOp::kFaultRemove, name); }

int rdmaemu_rule_release(const char* name) { return CallNamed(CallOp::kFaultRelease, name); }

int rdmaemu_rule_wait(const char* name, uint64_t times, uint64_t timeout_ms) {
  return AtDoor([&] {
    if (name == nullptr) return NoText("name");
    const std::chrono::milliseconds limit(std::min(timeout_ms, kMaxWait_ms));
    if (auto aside = ConnectAside()) {
      const Result<std::string> reply = aside->WaitForRule(name, times, limit);
      Json answer;
      return reply ? TakeAnswer(CallOp::kFaultWait, *reply, answer)
                   : RefuseWait(reply.error().code, name);
    }
    if (!ProcessHost::Get().IsOpen()) return RefuseWithoutHost();
    EmbeddedHosts::Firings fired;
    const int error = ProcessHost::Get().WaitUntil(
        [&](EmbeddedHosts& hosts) {
          fired = hosts.FiredOf(name);
          return !fired.may_fire || fired.times >= times;
        },
        limit);
    if (error == 0 && (!fired.exists || fired.times < times)) {
      return Refuse(ENOENT, "there is no rule called \"" + std::string(name) + "\"");
    }
    return RefuseWait(error, name);
  });
}

int rdmaemu_rules_clear() {
  return AtDoor([] {
    ForgetFired({});
    return OnEach(HostsHere(), 0, [] {
      Json answer;
      return CallFault(CallOp::kFaultClear, "", answer);
    });
  });
}

int rdmaemu_rules(rdmaemu_rule* rules, size_t capacity) {
  return AtDoor([&] {
    Json all;
    const int error = ListRules(HostsHere(), all);
    if (error != 0) return error;
    for (size_t i = 0; rules != nullptr && i < std::min(capacity, all.size()); i++) {
      const Json& from = all.at(i);
      CopyText(from.at("name"), rules[i].name);
      CopyText(from.at("at"), rules[i].at);
      CopyText(from.at("does"), rules[i].does);
      rules[i].matched = from.at("matched").get<uint64_t>();
      rules[i].fired = from.at("fired").get<uint64_t>();
    }
    return static_cast<int>(all.size());
  });
}

int rdmaemu_rule_places(const char* point, char* text, size_t bytes) {
  return AtDoor([&] {
    if (point == nullptr) return NoText("point");
    const auto known = fault::PointOf(point);
    if (!known) {
      std::string points;
      for (const std::string& name : fault::PointNames()) {
        points += (points.empty() ? "" : ", ") + name;
      }
      return Refuse(EINVAL,
                    "there is no point \"" + std::string(point) + "\"; the points are " + points);
    }
    std::string places;
    for (const std::string& subject : FaultVocabulary()[static_cast<size_t>(*known)]) {
      places += fault::PlaceName(*known, subject) + "\n";
    }
    if (text != nullptr && bytes > 0) text[places.copy(text, bytes - 1)] = '\0';
    return static_cast<int>(places.size());
  });
}

int rdmaemu_rule_faults(const char* place, char* text, size_t bytes) {
  return AtDoor([&] {
    if (place == nullptr) return NoText("place");
    std::string faults;
    for (const fault::LikelyFault& each : fault::LikelyFaultsAt(place)) {
      faults += each.name + "\t" + each.keys + "\n";
    }
    if (text != nullptr && bytes > 0) text[faults.copy(text, bytes - 1)] = '\0';
    return static_cast<int>(faults.size());
  });
}
