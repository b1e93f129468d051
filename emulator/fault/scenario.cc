#include "emulator/fault/scenario.h"

#include <algorithm>
#include <map>

#include "emulator/base/toml.h"
#include "emulator/fault/after.h"
#include "emulator/fault/program_reader.h"
#include "emulator/fault/rule_reader.h"
#include "emulator/fault/rules.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

Parsed<toml::table> ParseBounded(std::string_view text, std::string_view file,
                                 uint32_t column_shift) {
  if (text.size() > kMaxScenarioBytes) {
    return tl::make_unexpected(std::string(file) + ": is larger than 1 MiB");
  }
  return ParseToml(text, file, column_shift);
}

// Checks that names are unique, and that each `after` names one of the rules. `list` is the array
// from which the rules were read.
Parsed<std::vector<Rule>> Checked(std::vector<Rule> rules, const toml::array& list,
                                  std::string_view file) {
  const auto position = [&](size_t rule, std::string_view key) {
    const toml::node* const node = list[rule].as_table()->get(key);
    return PositionOf(node != nullptr ? *node : list[rule]);
  };
  RulesByName names;
  std::map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < rules.size(); i++) {
    const auto [known, is_new] = numbers.try_emplace(rules[i].name, i);
    if (!is_new) {
      return tl::make_unexpected(Mistake(file, position(i, "name"),
                                         "two rules are called " + Quoted(rules[i].name) +
                                             "; the other is in line " +
                                             std::to_string(position(known->second, "name").line)));
    }
    names[rules[i].name] = &rules[i];
  }
  for (size_t i = 0; i < rules.size(); i++) {
    if (const auto wrong = WrongAfter(rules[i], names, "the scenario")) {
      return tl::make_unexpected(Mistake(file, position(i, "after"), *wrong));
    }
  }
  return rules;
}

// Returns true when the last rule exceeds kMaxRules on a host. A host takes the rules that name it
// and the rules that name no host.
bool IsTooManyForItsHost(const std::vector<Rule>& rules) {
  const std::string& host = rules.back().match.host;
  std::map<std::string_view, size_t> named;
  size_t of_all = 0;
  for (const Rule& rule : rules) rule.match.host.empty() ? of_all++ : named[rule.match.host]++;
  size_t most = of_all;
  for (const auto& [name, count] : named) {
    if (host.empty() || name == host) most = std::max(most, of_all + count);
  }
  return most > Rules::kMaxRules;
}

}  // namespace

Parsed<std::vector<Rule>> ParseScenario(std::string_view toml, std::string_view file_name,
                                        const Vocabulary& vocabulary) {
  const auto table = ParseBounded(toml, file_name, 0);
  if (!table) return tl::make_unexpected(table.error());
  std::vector<Rule> rules;
  for (const auto& [key, node] : *table) {
    const toml::array* const list = node.as_array();
    const bool is_known = key.str() == "fault" || key.str() == "program";
    if (is_known && list != nullptr && list->is_array_of_tables()) continue;
    return tl::make_unexpected(Mistake(file_name, PositionOf(node),
                                       Quoted(key.str()) +
                                           " is not part of a scenario, which is"
                                           " made of [[fault]] and [[program]] tables"));
  }
  if (const auto programs = ReadPrograms(*table, file_name); !programs) {
    return tl::make_unexpected(programs.error());
  }
  const toml::array* const list = table->get_as<toml::array>("fault");
  if (list == nullptr) return rules;
  for (const toml::node& node : *list) {
    auto rule = RuleReader(*node.as_table(), file_name, 0, vocabulary).Read(rules.size() + 1);
    if (!rule) return tl::make_unexpected(std::move(rule.error()));
    rules.push_back(std::move(*rule));
    if (rules.size() > Rules::kMaxRules && IsTooManyForItsHost(rules)) {
      return tl::make_unexpected(Mistake(
          file_name, PositionOf(node),
          "this is rule " + std::to_string(Rules::kMaxRules + 1) + " of one host, which takes " +
              std::to_string(Rules::kMaxRules) + "; at with a list of places may save some"));
    }
  }
  return Checked(std::move(rules), *list, file_name);
}

std::string RuleTooLong() {
  return "the rule is longer than " + std::to_string(kMaxRuleBytes) +
         " bytes, which no rule is; a scenario file may have many rules";
}

Parsed<Rule> ParseRule(std::string_view keys, size_t number, const Vocabulary& vocabulary) {
  if (keys.size() > kMaxRuleBytes) return tl::make_unexpected(RuleTooLong());
  static constexpr std::string_view kBefore = "fault = { ", kFile = "rule";
  const std::string text = std::string(kBefore) + std::string(keys) + " }";
  const auto table = ParseBounded(text, kFile, kBefore.size());
  if (!table) return tl::make_unexpected(table.error());
  const toml::table* const rule = table->get_as<toml::table>("fault");
  if (rule == nullptr || table->size() != 1) {
    return tl::make_unexpected(std::string("rule: must be keys of one rule, such as: ") +
                               "at = \"cm.req\", nth = 3, reject = 28");
  }
  return RuleReader(*rule, kFile, kBefore.size(), vocabulary).Read(number);
}

}  // namespace rdmaemu::fault
