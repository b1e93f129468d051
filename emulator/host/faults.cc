#include "emulator/host/faults.h"

#include <nlohmann/json.hpp>

namespace rdmaemu {
namespace {

using Json = nlohmann::ordered_json;

// What a client sent may stand in it, and need not be UTF-8.
std::string Answer(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string UnknownRule(std::string_view name) {
  return Answer({{"error", "there is no rule called \"" + std::string(name) +
                               "\"; rdmaemu fault list shows them"}});
}

}  // namespace

const fault::Rule* HostFaults::Decide(const fault::Moment& moment, ProcessId process,
                                      FaultTarget target) {
  const fault::Rule* const rule = rules_.Decide(moment);
  if (rule == nullptr) return nullptr;
  Trace(moment, process, *rule);
  const auto* const deed = std::get_if<fault::Deed>(&rule->action);
  if (deed == nullptr) return rule;
  Queue(ObjectDeed{*deed, target, std::string(moment.device)});
  return nullptr;
}

void HostFaults::Expire(Time now) {
  while (const auto due = rules_.DecideTime(now)) {
    if (due->rule == nullptr) continue;
    Trace(due->moment, ProcessId::kNone, *due->rule);
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

std::optional<FaultDeed> HostFaults::TakeDeed() {
  if (deeds_.empty()) return std::nullopt;
  FaultDeed next = std::move(deeds_.front());
  deeds_.pop_front();
  flags_.interrupts = !deeds_.empty();
  return next;
}

void HostFaults::SetFlags() {
  flags_.completions = Watches(fault::Point::kCompletion);
  flags_.memory = Watches(fault::Point::kMemory);
  flags_.packets = Watches(fault::Point::kPacket) || Watches(fault::Point::kLink);
}

Status HostFaults::Add(fault::Rule rule) {
  if (IsForAnotherHost(rule)) return {};
  const Status added = rules_.Add(std::move(rule), began_ ? std::optional(now_) : std::nullopt);
  SetFlags();
  return added;
}

void HostFaults::Clear() {
  rules_.Clear();
  SetFlags();
}

std::string HostFaults::AddText(std::string_view rule) {
  auto parsed = fault::ParseRule(rule, ++rules_made_, FaultVocabulary());
  if (!parsed) return Answer({{"error", parsed.error()}});
  if (IsForAnotherHost(*parsed)) {
    return Answer({{"error", "the rule is for host \"" + parsed->match.host +
                                 "\", and this is host \"" + host_name_ + "\""}});
  }
  const std::string name = parsed->name;
  const Status added = Add(std::move(*parsed));
  if (added) return Answer({{"name", name}});
  return Answer({{"error", added.error().code == EEXIST
                               ? "there is a rule called \"" + name +
                                     "\" already; remove it first, or choose another name"
                               : "the host has " + std::to_string(fault::Rules::kMaxRules) +
                                     " rules, and takes no more; remove some"}});
}

std::string HostFaults::RemoveText(std::string_view name) {
  const Status removed = rules_.Remove(name);
  SetFlags();
  return removed ? Answer({{"name", std::string(name)}}) : UnknownRule(name);
}

std::string HostFaults::ReleaseText(std::string_view name) const {
  for (const fault::RuleState& state : rules_.all()) {
    if (state.rule.name != name) continue;
    if (!std::holds_alternative<fault::Hold>(state.rule.action)) {
      return Answer({{"error", "the rule \"" + std::string(name) + "\" holds nothing; it does: " +
                                   fault::ActionText(state.rule.action)}});
    }
    return Answer({{"name", std::string(name)}});
  }
  return UnknownRule(name);
}

std::string HostFaults::ListText() const {
  Json list = Json::array();
  for (const fault::RuleState& state : rules_.all()) {
    list.push_back({{"name", state.rule.name},
                    {"at", fault::PlaceName(state.rule.point, state.rule.match.subject)},
                    {"does", fault::ActionText(state.rule.action)},
                    {"matched", state.matched},
                    {"fired", state.fired}});
  }
  return Answer(list);
}

void HostFaults::Trace(const fault::Moment& moment, ProcessId process, const fault::Rule& rule) {
  if (!trace_.wants_records()) return;
  trace::Record record{moment.now, process, "fault", rule.name, fault::ActionText(rule.action), {}};
  record.fields.push_back({"at", fault::PlaceName(rule.point, moment.subject)});
  trace_.Write(record);
}

}  // namespace rdmaemu
