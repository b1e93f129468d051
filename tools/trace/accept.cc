#include "tools/trace/accept.h"

#include <algorithm>
#include <utility>

#include "emulator/base/toml.h"
#include "tools/trace/objects.h"

namespace rdmaemu::trace_tools {
namespace {

using Problem = std::string;  // empty: none

// Reads one [[accept]] table. `Read` returns the problem. `line` returns the line of the node that
// has the problem.
class AcceptanceReader {
 public:
  explicit AcceptanceReader(const toml::table& table) : table_(table), at_(&table) {}

  Problem Read(Acceptance& acceptance) {
    acceptance.line = table_.source().begin.line;
    for (const auto& [key, node] : table_) {
      at_ = &node;
      if (Problem problem = ReadKey(std::string(key.str()), node, acceptance); !problem.empty()) {
        return problem;
      }
    }
    at_ = &table_;
    if (acceptance.reason.empty()) return "give the acceptance a reason";
    if (acceptance.what.empty()) {
      return "give the acceptance a `what`: the name of a call, an event or a status";
    }
    return {};
  }
  size_t line() const { return at_->source().begin.line; }

 private:
  Problem ReadKey(const std::string& key, const toml::node& node, Acceptance& acceptance) {
    const std::pair<const char*, std::string*> kTexts[] = {
        {"reason", &acceptance.reason}, {"what", &acceptance.what},
        {"kind", &acceptance.kind},     {"process", &acceptance.process},
        {"object", &acceptance.object}, {"only", &acceptance.only},
        {"a", &acceptance.a},           {"b", &acceptance.b},
    };
    if (key == "parts") return ReadParts(node, acceptance);
    if (key == "sometimes") {
      const auto value = node.value_exact<bool>();
      if (value) acceptance.sometimes = *value;
      return value ? Problem() : "`sometimes` must be true or false";
    }
    for (const auto& [name, text] : kTexts) {
      if (key != name) continue;
      const auto value = node.value_exact<std::string>();
      if (!value || value->empty()) return "`" + key + "` must be a string that is not empty";
      *text = *value;
      const std::string& only = acceptance.only;
      if (key == "only" && only != "a" && only != "b" && only != "both") {
        return "`only` must be \"a\", \"b\" or \"both\"";
      }
      return {};
    }
    return "there is no key `" + key +
           "`; an acceptance has reason, what, kind, process, object, only, parts, a, b, sometimes";
  }
  static Problem ReadParts(const toml::node& node, Acceptance& acceptance) {
    const toml::array* const list = node.as_array();
    const Problem problem = "`parts` must be a list of strings, such as [\"errno\"]";
    if (list == nullptr || list->empty()) return problem;
    for (const toml::node& each : *list) {
      const auto part = each.value_exact<std::string>();
      if (!part) return problem;
      acceptance.parts.push_back(*part);
    }
    return {};
  }

  const toml::table& table_;
  const toml::node* at_;
};

bool MatchesName(const std::string& pattern, const std::string& name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

bool MatchesSide(const std::string& wanted, const std::optional<Item>& item) {
  return wanted.empty() || (item && ItemLine(item->text).find(wanted) != std::string::npos);
}

bool Matches(const Acceptance& acceptance, const Difference& difference) {
  const size_t space = std::min(difference.head.find(' '), difference.head.size());
  const std::string kind = difference.head.substr(0, space);
  const std::string what = difference.head.substr(std::min(space + 1, difference.head.size()));
  const std::string& object = difference.stream.object;
  const auto is_or_empty = [](const std::string& wanted, const std::string& is) {
    return wanted.empty() || wanted == is;
  };
  const char* const side = !difference.b ? "a" : !difference.a ? "b" : "both";
  // A record may lack the key "what". The acceptance's `what` then matches the record's kind.
  if (!MatchesName(acceptance.what, what.empty() ? kind : what)) return false;
  if (!is_or_empty(acceptance.kind, kind) || !is_or_empty(acceptance.only, side)) return false;
  if (!is_or_empty(acceptance.process, difference.stream.process)) return false;
  if (!is_or_empty(acceptance.object, object) && acceptance.object != KindOfName(object)) {
    return false;
  }
  const bool has_parts =
      acceptance.parts.empty() ||
      (!difference.parts.empty() &&
       std::ranges::all_of(difference.parts, [&](const PartDifference& each) {
         return std::ranges::find(acceptance.parts, each.part) != acceptance.parts.end();
       }));
  return has_parts && MatchesSide(acceptance.a, difference.a) &&
         MatchesSide(acceptance.b, difference.b);
}

}  // namespace

tl::expected<std::vector<Acceptance>, std::string> ParseAcceptances(std::string_view text,
                                                                    std::string_view file) {
  const std::string name(file);
  if (text.size() > kMaxAcceptBytes) return tl::unexpected(name + ": is larger than 1 MiB");
  const auto table = ParseToml(text, file);
  if (!table) return tl::unexpected(table.error());
  const auto wrong = [&](size_t line, const std::string& why) {
    return tl::unexpected(name + ":" + std::to_string(line) + ": " + why);
  };
  std::vector<Acceptance> acceptances;
  for (const auto& [key, node] : *table) {
    const toml::array* const list = node.as_array();
    if (key.str() != "accept" || list == nullptr || !list->is_array_of_tables()) {
      return wrong(node.source().begin.line, "only [[accept]] tables can be here");
    }
    for (const toml::node& each : *list) {
      AcceptanceReader reader(*each.as_table());
      if (acceptances.size() == kMaxAcceptances) {
        return wrong(reader.line(), "there are more than 10000 acceptances");
      }
      Acceptance acceptance;
      if (const Problem problem = reader.Read(acceptance); !problem.empty()) {
        return wrong(reader.line(), problem);
      }
      acceptances.push_back(std::move(acceptance));
    }
  }
  return acceptances;
}

void Accept(std::vector<Acceptance>& acceptances, Comparison& comparison) {
  for (Difference& difference : comparison.differences) {
    const auto match = std::ranges::find_if(
        acceptances, [&](const Acceptance& each) { return Matches(each, difference); });
    if (match == acceptances.end()) continue;
    difference.accepted = match->reason;
    match->used++;
  }
}

}  // namespace rdmaemu::trace_tools
