// Whom a rule is after: one that the same host has, and never, by however many others, itself. A
// rule that is after one that nobody has would wait for ever, and nobody would be told.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

using RulesByName = std::map<std::string_view, const Rule*>;

// What is wrong with the rule's `after`, and what would have been right; nothing: it is. `whose`
// the other rules are, for the message: "the scenario", "host \"a\"".
std::optional<std::string> WrongAfter(const Rule& rule, const RulesByName& others,
                                      std::string_view whose);

}  // namespace rdmaemu::fault
