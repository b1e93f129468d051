// Fault rules as TOML text, one table [[fault]] per rule. A scenario file has many tables, and may
// have the programs of a test (programs.h). The command line has the content of one table, in the
// same grammar: `at = "cm.req", nth = 3, reject = 28`. docs/faults.md is the reference.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

// The existing subjects, by Point. The host supplies them. Those of kCmEvent are in the order of
// RDMA_CM_EVENT_*.
using Vocabulary = std::array<std::vector<std::string>, kPoints>;

inline constexpr size_t kMaxScenarioBytes = 1 << 20;
inline constexpr size_t kMaxRuleBytes = 8192;  // of a single rule
// Returns the error for a rule that is longer.
std::string RuleTooLong();

// The error is "FILE:LINE:COLUMN: what is wrong; what would have been right".
template <class T>
using Parsed = tl::expected<T, std::string>;

// Returns the rules of a scenario. Mistakes in its programs are errors, too.
Parsed<std::vector<Rule>> ParseScenario(std::string_view toml, std::string_view file_name,
                                        const Vocabulary& vocabulary);
// Returns the name of a rule that has none in its text.
inline std::string UnnamedRule(size_t number) { return "rule " + std::to_string(number); }
// Parses one rule on one line, without [[fault]]. `number` is for UnnamedRule.
Parsed<Rule> ParseRule(std::string_view keys, size_t number, const Vocabulary& vocabulary);

// Returns a point and subject in the words of rules: "cm.req", or "call" for any subject.
std::string PlaceName(Point point, std::string_view subject);

// Returns all places of a rule: "cm.req, cm.rep", or "cm.req and 3 more" when the text is long.
std::string PlacesText(const Rule& rule);

// Returns an action in the words of rules: "reject = 28".
std::string ActionText(const Action& action);

}  // namespace rdmaemu::fault
