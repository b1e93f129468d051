#include "emulator/fault/scenario.h"

#include <set>

#include "emulator/base/toml.h"
#include "emulator/fault/rule_reader.h"
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

// Names are unique, and `after` names one.
Parsed<std::vector<Rule>> Checked(std::vector<Rule> rules, std::string_view file) {
  std::set<std::string> names;
  for (const Rule& rule : rules) {
    if (!names.insert(rule.name).second) {
      return tl::make_unexpected(std::string(file) + ": two rules are called \"" + rule.name +
                                 "\"");
    }
  }
  for (const Rule& rule : rules) {
    if (rule.match.after.empty() || names.contains(rule.match.after)) continue;
    return tl::make_unexpected(std::string(file) + ": rule \"" + rule.name + "\" is after \"" +
                               rule.match.after + "\"; " +
                               Instead(rule.match.after, {names.begin(), names.end()}));
  }
  return rules;
}

}  // namespace

Parsed<std::vector<Rule>> ParseScenario(std::string_view toml, std::string_view file_name,
                                        const Vocabulary& vocabulary) {
  const auto table = ParseBounded(toml, file_name, 0);
  if (!table) return tl::make_unexpected(table.error());
  std::vector<Rule> rules;
  for (const auto& [key, node] : *table) {
    const toml::array* const list = node.as_array();
    if (key.str() == "fault" && list != nullptr && list->is_array_of_tables()) continue;
    const toml::source_position at = node.source().begin;
    return tl::make_unexpected(std::string(file_name) + ":" + std::to_string(at.line) + ":" +
                               std::to_string(at.column) + ": \"" + std::string(key.str()) +
                               "\" is not part of a scenario, which is made of [[fault]] tables");
  }
  if (const toml::array* const list = table->get_as<toml::array>("fault")) {
    for (const toml::node& node : *list) {
      auto rule = RuleReader(*node.as_table(), file_name, 0, vocabulary).Read(rules.size() + 1);
      if (!rule) return tl::make_unexpected(std::move(rule.error()));
      rules.push_back(std::move(*rule));
    }
  }
  return Checked(std::move(rules), file_name);
}

Parsed<Rule> ParseRule(std::string_view keys, size_t number, const Vocabulary& vocabulary) {
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
