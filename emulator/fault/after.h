// Checks the `after` of rules. The key `after` must name a rule of the same host. A chain of
// `after` must not contain the rule itself, because the rule would then never fire, without an
// error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

using RulesByName = std::map<std::string_view, const Rule*>;

// Returns the error in the rule's `after` with a correction, or nothing. `whose` names the owner of
// the other rules for the message: "the scenario", "host \"a\"".
std::optional<std::string> WrongAfter(const Rule& rule, const RulesByName& others,
                                      std::string_view whose);

}  // namespace rdmaemu::fault
