// Fault rules as text: TOML, one table [[fault]] a rule. The same grammar everywhere: a scenario
// file has many tables, the command line gives the inside of one (`at = "cm.req", nth = 3,
// reject = 28`). docs/faults.md is its reference.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

// The subjects that exist, by Point; the host knows them. Those of kCmEvent stand in the order of
// RDMA_CM_EVENT_*.
using Vocabulary = std::array<std::vector<std::string>, kPoints>;

inline constexpr size_t kMaxScenarioBytes = 1 << 20;
inline constexpr size_t kMaxRuleBytes = 8192;  // of a rule that is added alone
// What is said of one that is longer.
std::string RuleTooLong();

// The error is "FILE:LINE:COLUMN: what is wrong; what would have been right".
template <class T>
using Parsed = tl::expected<T, std::string>;

Parsed<std::vector<Rule>> ParseScenario(std::string_view toml, std::string_view file_name,
                                        const Vocabulary& vocabulary);
// What a rule without a name is called.
inline std::string UnnamedRule(size_t number) { return "rule " + std::to_string(number); }
// One rule, without [[fault]] and on one line. `number`: of UnnamedRule.
Parsed<Rule> ParseRule(std::string_view keys, size_t number, const Vocabulary& vocabulary);

// The words that a point and subject have in rules: "cm.req", "call" for any subject.
std::string PlaceName(Point point, std::string_view subject);

// Those of all places of a rule, "cm.req, cm.rep"; "cm.req and 3 more" where they are many.
std::string PlacesText(const Rule& rule);

// The same words for what it does: "reject = 28".
std::string ActionText(const Action& action);

}  // namespace rdmaemu::fault
