#include "emulator/fault/after.h"

#include <vector>

#include "emulator/fault/rules.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

std::string Unknown(const Rule& rule, const RulesByName& others, std::string_view whose) {
  std::vector<std::string> names;
  for (const auto& [name, other] : others) {
    if (name != rule.name) names.emplace_back(name);
  }
  return std::string(whose) + " has no rule " + Quoted(rule.match.after) + "; " +
         (names.empty() ? "it has no other rule" : Instead(rule.match.after, names));
}

// Returns true when the chain of `after` from `other` contains `rule`. The chain may end in a cycle
// without `rule`. The search stops after kMaxRules steps, the most rules of a host.
bool ComesBackTo(const Rule& rule, const Rule* other, const RulesByName& others) {
  for (size_t steps = 0; steps < Rules::kMaxRules; steps++) {
    if (other->match.after == rule.name) return true;
    const auto next = others.find(other->match.after);
    if (next == others.end()) return false;
    other = next->second;
  }
  return false;
}

}  // namespace

std::optional<std::string> WrongAfter(const Rule& rule, const RulesByName& others,
                                      std::string_view whose) {
  const std::string& after = rule.match.after;
  if (after.empty()) return std::nullopt;
  if (after == rule.name) return "a rule after itself would never fire";
  const auto found = others.find(after);
  if (found == others.end()) return Unknown(rule, others, whose);
  const Rule& other = *found->second;
  // A host that does not have the other rule cannot detect that rule's firing.
  if (!other.match.host.empty() && other.match.host != rule.match.host) {
    return "rule " + Quoted(after) + " applies to host " + Quoted(other.match.host) +
           " only, and other hosts do not see its firings; a rule after it needs host = " +
           Quoted(other.match.host) + " too";
  }
  if (ComesBackTo(rule, &other, others)) {
    return "rule " + Quoted(after) + " is after " + Quoted(rule.name) +
           ", itself or by others: none of them would ever fire";
  }
  return std::nullopt;
}

}  // namespace rdmaemu::fault
