#include "emulator/host/faults/host_faults.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/fault/after.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

using Json = nlohmann::ordered_json;

// The text may contain a client's input, which need not be UTF-8.
std::string Answer(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string UnknownRule(std::string_view name) {
  return Answer({{"error", "there is no rule called \"" + std::string(name) +
                               "\"; rdmaemu fault list shows them"}});
}

std::string FiredText(const fault::RuleState& state) {
  return Answer({{"name", state.rule.name}, {"matched", state.matched}, {"fired", state.fired}});
}

// Returns which events happened at the door of a rule that matched nothing. Lists the rule's own
// places first, then the most frequent other places.
Json SeenAt(const fault::Rules& rules, const fault::Rule& rule) {
  constexpr size_t kMostSeen = 3;  // keeps the list of all rules within one reply
  std::vector<std::pair<uint64_t, std::string_view>> others;
  uint64_t own = 0;
  for (const auto& [subject, count] : rules.SeenAt(rule.point)) {
    const bool is_own = !rule.match.subjects.empty() && rule.IsAt(subject);
    if (is_own) own += count;
    if (!is_own) others.emplace_back(count, subject);
  }
  std::ranges::stable_sort(others, [](const auto& a, const auto& b) { return a.first > b.first; });
  Json seen = Json::array();
  if (own == 0 && others.empty()) return seen;
  if (!rule.match.subjects.empty()) {
    seen.push_back({{"at", fault::PlacesText(rule)}, {"times", own}});
  }
  for (const auto& [count, subject] : others) {
    if (seen.size() == kMostSeen) break;
    seen.push_back({{"at", fault::PlaceName(rule.point, subject)}, {"times", count}});
  }
  return seen;
}

// Returns the error of a rule that depends on another host's rule. Hosts do not see each other's
// firings.
std::optional<std::string> WrongAfter(fault::Rule rule, const fault::Rules& rules,
                                      const std::string& host) {
  fault::RulesByName names;
  for (const fault::RuleState& state : rules.all()) names[state.rule.name] = &state.rule;
  rule.match.host = host;
  return fault::WrongAfter(rule, names, "host \"" + host + "\"");
}

}  // namespace

const fault::Rule* HostFaults::Decide(const fault::Moment& moment, ProcessId process,
                                      FaultTarget target) {
  const fault::Rule* const rule = rules_.Decide(moment);
  for (const fault::Rule* const witness : rules_.witnesses()) Fired(moment, process, *witness);
  if (rule == nullptr) return nullptr;
  Fired(moment, process, *rule);
  const auto* const deed = std::get_if<fault::Deed>(&rule->action);
  if (deed == nullptr) return rule;
  if (const auto* const end = std::get_if<fault::EndProgram>(deed)) {
    std::vector<ProcessId> processes;
    if (find_programs_) processes = find_programs_(end->which, process, target);
    Queue(EndProgramDeed{rule->name, *end, std::move(processes)});
    return nullptr;
  }
  Queue(ObjectDeed{*deed, target, std::string(moment.device)});
  return nullptr;
}

void HostFaults::Expire(Time now) {
  while (const auto due = rules_.DecideTime(now)) {
    if (due->rule == nullptr) continue;
    Fired(due->moment, ProcessId::kNone, *due->rule);
    if (const auto* const deed = std::get_if<fault::Deed>(&due->rule->action)) {
      Queue(ObjectDeed{*deed, {}, {}});
    }
  }
}

void HostFaults::Queue(FaultDeed deed) {
  if (deeds_.size() >= kMaxDeeds) {
    counters_.deeds_full++;
    return;
  }
  deeds_.push_back(std::move(deed));
  flags_.interrupts = true;
}

FaultDeed HostFaults::TakeDeed() {
  FaultDeed next = std::move(deeds_.front());
  deeds_.pop_front();
  flags_.interrupts = !deeds_.empty();
  return next;
}

void HostFaults::SetFlags() {
  flags_.completions = Watches(fault::Point::kCompletion);
  flags_.memory = Watches(fault::Point::kMemory);
  flags_.packets = Watches(fault::Point::kPacket) || Watches(fault::Point::kLink);
  watched_calls_ = rules_.all().empty() ? 0 : DoorbellPage::kNoSequences;
  for (uint32_t op = static_cast<uint32_t>(CallOp::kPostSend); IsAsked(CallOp{op}); op++) {
    if (rules_.Watches(fault::Point::kCall, CallSubject(op)))
      watched_calls_ |= WatchBit(CallOp{op});
  }
}

Status HostFaults::Add(fault::Rule rule) {
  if (IsForAnotherHost(rule)) return {};
  const Status added = rules_.Add(std::move(rule), began_ ? std::optional(now_) : std::nullopt);
  SetFlags();
  return added;
}

void HostFaults::Clear() {
  rules_.Clear();
  waits_.Removed({});
  SetFlags();
}

std::string HostFaults::AddText(std::string_view rule) {
  // Skip numbers that named rules have already, for example rules of a scenario.
  do {
    rules_made_++;
  } while (rules_.Find(fault::UnnamedRule(rules_made_)) != nullptr);
  auto parsed = fault::ParseRule(rule, rules_made_, FaultVocabulary());
  if (!parsed) return Answer({{"error", parsed.error()}});
  if (IsForAnotherHost(*parsed)) {
    return Answer({{"error", "the rule is for host \"" + parsed->match.host +
                                 "\", and this is host \"" + host_name_ + "\""}});
  }
  if (const auto wrong = why_not_ ? why_not_(*parsed) : std::nullopt) {
    return Answer({{"error", *wrong}, {"errno", EOPNOTSUPP}});
  }
  if (const auto wrong = WrongAfter(*parsed, rules_, host_name_)) {
    return Answer({{"error", *wrong}});
  }
  const std::string name = parsed->name;
  const Status added = Add(std::move(*parsed));
  if (added) return Answer({{"name", name}});
  return Answer({{"error", added.error().code == EEXIST
                               ? "there is a rule called \"" + name +
                                     "\" already; remove it first, or choose another name"
                               : "the host has " + std::to_string(fault::Rules::kMaxRules) +
                                     " rules, the maximum; remove some"}});
}

std::string HostFaults::RemoveText(std::string_view name) {
  const Status removed = rules_.Remove(name);
  waits_.Removed(name);
  SetFlags();
  return removed ? Answer({{"name", std::string(name)}}) : UnknownRule(name);
}

std::string HostFaults::ReleaseText(std::string_view name) const {
  const fault::RuleState* const state = rules_.Find(name);
  if (state == nullptr) return UnknownRule(name);
  if (!std::holds_alternative<fault::Hold>(state->rule.action)) {
    return Answer(
        {{"error", "the rule \"" + std::string(name) + "\" holds nothing; its action is: " +
                       fault::ActionText(state->rule.action)}});
  }
  return Answer({{"name", std::string(name)}});
}

std::optional<std::string> HostFaults::WaitText(ProcessId process, std::string_view name,
                                                uint64_t times) {
  const fault::RuleState* const state = rules_.Find(name);
  if (state == nullptr) return UnknownRule(name);
  if (state->fired >= times) return FiredText(*state);
  if (waits_.Add(process, name, times)) return std::nullopt;
  return Answer({{"error", std::to_string(FaultWaits::kMaxWaits) +
                               " clients wait for rules of this host already, the maximum"}});
}

std::optional<HostFaults::LateText> HostFaults::TakeLateText() {
  const std::optional<FaultWaits::Ended> ended = waits_.TakeEnded();
  if (!ended) return std::nullopt;
  const fault::RuleState* const state = rules_.Find(ended->rule);
  return LateText{ended->process,
                  state != nullptr
                      ? FiredText(*state)
                      : Answer({{"error", "the rule \"" + ended->rule +
                                              "\" was removed before it had fired that often"}})};
}

std::string HostFaults::ListText(const fault::HeldCounts& held) const {
  Json list = Json::array();
  for (const fault::RuleState& state : rules_.all()) {
    list.push_back({{"name", state.rule.name},
                    {"at", fault::PlacesText(state.rule)},
                    {"does", fault::ActionText(state.rule.action)},
                    {"matched", state.matched},
                    {"fired", state.fired}});
    if (state.matched == 0) {
      if (Json seen = SeenAt(rules_, state.rule); !seen.empty()) list.back()["seen"] = seen;
    }
    if (!std::holds_alternative<fault::Hold>(state.rule.action)) continue;
    const auto found = held.find(state.rule.name);
    list.back()["held"] = found == held.end() ? 0 : found->second;
  }
  return Answer(list);
}

void HostFaults::Fired(const fault::Moment& moment, ProcessId process, const fault::Rule& rule) {
  Trace(moment, process, rule);
  if (!waits_.empty()) waits_.Fired(rule.name, rules_.Find(rule.name)->fired);
}

void HostFaults::TraceRelease(Time now, ProcessId process, std::string_view rule, uint64_t items) {
  if (!trace_.wants_records()) return;
  trace::Record record{now, process, "fault.release", std::string(rule), "release", {}};
  record.fields.push_back({"items", items});
  trace_.Write(record);
}

void HostFaults::Trace(const fault::Moment& moment, ProcessId process, const fault::Rule& rule) {
  if (!trace_.wants_records()) return;
  trace::Record record{moment.now, process, "fault", rule.name, fault::ActionText(rule.action), {}};
  record.fields.push_back({"at", fault::PlaceName(rule.point, moment.subject)});
  trace_.Write(record);
}

}  // namespace rdmaemu
