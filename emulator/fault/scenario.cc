#include "emulator/fault/scenario.h"

// toml++ 3.3 asserts that a table's header begins as a key does, and reports the same as an error
// of the file right after it: files are not the program's own, so the report is what counts.
#define TOML_ASSERT(expr) static_assert(true)
#include <string.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace rdmaemu::fault {
namespace {

constexpr std::array<const char*, kPoints> kPointNames = {"call", "cm", "event"};
constexpr size_t kMaxNameBytes = 128;
constexpr uint64_t kMostMilliseconds = 1'000'000'000;  // eleven days; no overflow in nanoseconds
constexpr uint64_t kMostCopies = 64;
constexpr size_t kMaxPrivateDataBytes = 148;  // of a REJ; a SIDR_REP has 136
constexpr int kErrnoNumbers = 134;
constexpr const char* kStatus = "status";

// Edits that make one word of the other: a letter more, less, changed, or two exchanged.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); i++) {
    for (size_t j = 0; j <= b.size(); j++) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                              edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

// "did you mean X?" where one word is near, else all of them.
std::string Instead(std::string_view word, const std::vector<std::string>& words) {
  // No word is so long, and comparing costs the product of the lengths.
  word = word.substr(0, kMaxNameBytes);
  const auto nearest = std::ranges::min_element(
      words, {}, [&](const std::string& one) { return Distance(word, one); });
  const size_t distance = nearest == words.end() ? word.size() : Distance(word, *nearest);
  if (distance <= std::max<size_t>(2, word.size() / 4) && distance < word.size()) {
    return "did you mean \"" + *nearest + "\"?";
  }
  std::string all;
  for (const std::string& one : words) all += (all.empty() ? "" : ", ") + one;
  return "it is one of: " + all;
}

const std::map<std::string, int>& ErrnoNames() {
  static const std::map<std::string, int> kNames = [] {
    std::map<std::string, int> names;
    for (int number = 1; number < kErrnoNumbers; number++) {
      if (const char* const name = strerrorname_np(number)) names[name] = number;
    }
    return names;
  }();
  return kNames;
}

// Reads one [[fault]] and remembers the first thing that is wrong with it.
class RuleReader {
 public:
  RuleReader(const toml::table& table, std::string_view file, uint32_t column_shift)
      : table_(table), file_(file), column_shift_(column_shift) {}

  Parsed<Rule> Read(size_t number, const Vocabulary& vocabulary) {
    Rule rule{"rule " + std::to_string(number), {}, {}, {}, Drop{}};
    if (ReadText("name", rule.name) && std::ranges::any_of(rule.name, IsControl)) {
      Wrong(*table_.get("name"), "name must not have control characters");
    }
    ReadPlace(rule, vocabulary);
    ReadMatch(rule.match);
    // One message between two addresses of a host is both sent and received by it.
    if (rule.point == Point::kCmMessage && !rule.match.direction) {
      rule.match.direction = Direction::kReceive;
    }
    ReadFrequency(rule.frequency);
    ReadAction(rule, vocabulary);
    NoOthers();
    if (!error_.empty()) return tl::make_unexpected(error_);
    return rule;
  }

 private:
  const toml::node* Get(std::string_view key) {
    if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
    return table_.get(key);
  }
  void Wrong(const toml::node& node, const std::string& what) {
    if (!error_.empty()) return;
    const toml::source_position at = node.source().begin;
    const uint32_t column = at.column > column_shift_ ? at.column - column_shift_ : 1;
    error_ = std::string(file_) + ":" + std::to_string(at.line) + ":" + std::to_string(column) +
             ": " + what;
  }
  static std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

  bool ReadText(const char* key, std::string& to) {
    const toml::node* const node = Get(key);
    if (node == nullptr) return false;
    const auto text = node->value_exact<std::string>();
    if (text && !text->empty() && text->size() <= kMaxNameBytes) {
      to = *text;
      return true;
    }
    Wrong(*node, std::string(key) + " must be a string of 1 to " + std::to_string(kMaxNameBytes) +
                     " bytes");
    return false;
  }
  std::optional<uint64_t> ReadNumber(const char* key, uint64_t least, uint64_t most) {
    const toml::node* const node = Get(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<int64_t>();
    if (value && *value >= 0 && static_cast<uint64_t>(*value) >= least &&
        static_cast<uint64_t>(*value) <= most) {
      return static_cast<uint64_t>(*value);
    }
    Wrong(*node, std::string(key) + " must be an integer from " + std::to_string(least) + " to " +
                     std::to_string(most));
    return std::nullopt;
  }
  template <class Number>
  void ReadNumber(const char* key, uint64_t least, uint64_t most, std::optional<Number>& to) {
    if (const auto value = ReadNumber(key, least, most)) to = static_cast<Number>(*value);
  }
  void ReadNumber(const char* key, uint64_t least, uint64_t most, uint64_t& to) {
    to = ReadNumber(key, least, most).value_or(to);
  }
  void ReadTime(const char* key, std::optional<Duration>& to) {
    if (const auto value = ReadNumber(key, 0, kMostMilliseconds)) {
      to = std::chrono::milliseconds(*value);
    }
  }
  void ReadAddress(const char* key, std::optional<NetAddress>& to) {
    std::string text;
    if (!ReadText(key, text)) return;
    to = NetAddress::Parse(text);
    if (!to) Wrong(*table_.get(key), Quoted(text) + " is not an IPv4 or IPv6 address");
  }
  bool ReadFlag(const char* key) {
    const toml::node* const node = Get(key);
    if (node == nullptr) return false;
    const auto value = node->value_exact<bool>();
    if (!value) Wrong(*node, std::string(key) + " must be true or false");
    return value.value_or(false);
  }

  void ReadPlace(Rule& rule, const Vocabulary& vocabulary) {
    std::string place;
    if (!ReadText("at", place)) {
      Wrong(table_, "at is missing: the point where the rule stands, such as \"cm.req\"");
      return;
    }
    const toml::node& node = *table_.get("at");
    const size_t dot = place.find('.');
    const std::string point = place.substr(0, dot);
    const auto known =
        std::ranges::find(kPointNames, point, [](const char* name) { return std::string(name); });
    if (known == kPointNames.end()) {
      Wrong(node, "there is no point " + Quoted(point) + "; " +
                      Instead(point, {kPointNames.begin(), kPointNames.end()}));
      return;
    }
    const auto index = static_cast<size_t>(known - kPointNames.begin());
    rule.point = Point{static_cast<uint8_t>(index)};
    if (dot == place.npos) return;
    rule.match.subject = place.substr(dot + 1);
    if (std::ranges::find(vocabulary[index], rule.match.subject) == vocabulary[index].end()) {
      Wrong(node,
            "there is no " + Quoted(place) + "; " + Instead(rule.match.subject, vocabulary[index]));
    }
  }

  void ReadMatch(Match& match) {
    std::string direction;
    if (ReadText("direction", direction)) {
      if (direction == "send") {
        match.direction = Direction::kSend;
      } else if (direction == "receive") {
        match.direction = Direction::kReceive;
      } else {
        Wrong(*table_.get("direction"), "direction must be \"send\" or \"receive\"");
      }
    }
    ReadText("program", match.program);
    ReadText("after", match.after);
    ReadAddress("local", match.local);
    ReadAddress("remote", match.remote);
    ReadNumber("service_port", 1, 65535, match.service_port);
    ReadTime("from_ms", match.from);
    ReadTime("until_ms", match.until);
  }

  void ReadFrequency(Frequency& often) {
    ReadNumber("nth", 1, INT64_MAX, often.nth);
    ReadNumber("every", 1, INT64_MAX, often.every);
    ReadNumber("first", 1, INT64_MAX, often.first);
    ReadNumber("times", 1, INT64_MAX, often.times);
    const toml::node* const node = Get("probability");
    if (node == nullptr) return;
    const auto value = node->value<double>();
    if (value && *value > 0 && *value <= 1) {
      often.probability = *value;
    } else {
      Wrong(*node, "probability must be a number above 0 and at most 1");
    }
  }

  // Exactly one action, and one that its point knows.
  void ReadAction(Rule& rule, const Vocabulary& vocabulary) {
    struct Known {
      std::string_view key;
      std::vector<Point> points;
    };
    static const std::vector<Known> kActions = {
        {"drop", {Point::kCmMessage}},      {"delay_ms", {Point::kCmMessage}},
        {"duplicate", {Point::kCmMessage}}, {"reject", {Point::kCmMessage}},
        {"errno", {Point::kCall}},          {kStatus, {Point::kCmEvent}},
        {"event", {Point::kCmEvent}},
    };
    std::string_view chosen;
    std::string possible;
    for (const Known& action : kActions) {
      const bool fits = std::ranges::find(action.points, rule.point) != action.points.end();
      if (fits) possible += (possible.empty() ? "" : ", ") + std::string(action.key);
      const toml::node* const node = Get(action.key);
      // A status goes with an event; alone it is an action too.
      if (node == nullptr || (action.key == kStatus && table_.contains("event"))) continue;
      if (!chosen.empty()) {
        Wrong(*node, std::string(action.key) + " and " + std::string(chosen) +
                         " are two actions; a rule has one");
      }
      chosen = action.key;
    }
    if (chosen.empty()) {
      Wrong(table_, "the rule does nothing; at this point it can: " + possible);
      return;
    }
    if ((", " + possible + ",").find(", " + std::string(chosen) + ",") == std::string::npos) {
      Wrong(*table_.get(chosen), std::string(chosen) + " is not possible at " +
                                     Quoted(PlaceName(rule.point, rule.match.subject)) +
                                     "; there a rule can: " + possible);
      return;
    }
    TakeAction(chosen, rule, vocabulary);
  }

  void TakeAction(std::string_view key, Rule& rule, const Vocabulary& vocabulary) {
    if (key == "drop") {
      if (!ReadFlag("drop")) Wrong(*table_.get("drop"), "drop must be true");
      rule.action = Drop{};
    } else if (key == "delay_ms") {
      std::optional<Duration> time;
      ReadTime("delay_ms", time);
      rule.action = Delay{time.value_or(Duration::zero())};
    } else if (key == "duplicate") {
      rule.action =
          Duplicate{static_cast<uint32_t>(ReadNumber("duplicate", 1, kMostCopies).value_or(1))};
    } else if (key == "errno") {
      rule.action = FailCall{ReadErrno(), ReadFlag("takes_effect")};
    } else if (key == kStatus || key == "event") {
      rule.action = ChangeEvent{ReadEvent(vocabulary), ReadStatus()};
    } else {
      ReadReject(rule);
    }
  }

  int ReadErrno() {
    std::string name;
    if (!ReadText("errno", name)) return 0;
    const auto found = ErrnoNames().find(name);
    if (found != ErrnoNames().end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [one, number] : ErrnoNames()) names.push_back(one);
    Wrong(*table_.get("errno"), "there is no errno " + Quoted(name) + "; " + Instead(name, names));
    return 0;
  }
  std::optional<int> ReadStatus() {
    const toml::node* const node = Get(kStatus);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<int64_t>();
    if (value && *value >= INT32_MIN && *value <= INT32_MAX) return static_cast<int>(*value);
    Wrong(*node, "status must be an integer of 32 bits: -errno, or a reject reason");
    return std::nullopt;
  }
  std::optional<uint32_t> ReadEvent(const Vocabulary& vocabulary) {
    std::string name;
    if (!ReadText("event", name)) return std::nullopt;
    const auto& events = vocabulary[static_cast<size_t>(Point::kCmEvent)];
    const auto found = std::ranges::find(events, name);
    if (found != events.end()) return static_cast<uint32_t>(found - events.begin());
    Wrong(*table_.get("event"), "there is no event " + Quoted(name) + "; " + Instead(name, events));
    return std::nullopt;
  }
  void ReadReject(Rule& rule) {
    Reject reject{static_cast<uint16_t>(ReadNumber("reject", 0, 65535).value_or(0)), {}};
    const std::string& subject = rule.match.subject;
    if (subject != "req" && subject != "sidr_req") {
      Wrong(*table_.get("reject"),
            "reject is possible at \"cm.req\" and \"cm.sidr_req\"; elsewhere nothing is rejected");
    }
    if (const toml::node* const node = Get("private_data")) {
      const auto text = node->value_exact<std::string>();
      if (text && text->size() <= kMaxPrivateDataBytes) {
        reject.private_data.assign(text->begin(), text->end());
      } else {
        Wrong(*node, "private_data must be a string of at most " +
                         std::to_string(kMaxPrivateDataBytes) + " bytes");
      }
    }
    rule.action = std::move(reject);
  }

  void NoOthers() {
    // What belongs to another action is known, but not here.
    static const std::vector<std::pair<const char*, const char*>> kOnlyWith = {
        {"private_data", "reject"}, {"takes_effect", "errno"}};
    for (const auto& [key, action] : kOnlyWith) {
      if (table_.contains(key) && !table_.contains(action)) {
        Wrong(*table_.get(key), std::string(key) + " belongs to " + action);
      }
      known_.push_back(key);
    }
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::ranges::find(known_, name) == known_.end()) {
        Wrong(node, Quoted(name) + " is not a key of a rule; " + Instead(name, known_));
      }
    }
  }

  const toml::table& table_;
  std::string_view file_;
  uint32_t column_shift_;
  std::string error_;
  std::vector<std::string> known_;
};

Parsed<toml::table> ParseToml(std::string_view text, std::string_view file, uint32_t column_shift) {
  if (text.size() > kMaxScenarioBytes) {
    return tl::make_unexpected(std::string(file) + ": is larger than 1 MiB");
  }
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    const uint32_t column = at.column > column_shift ? at.column - column_shift : 1;
    return tl::make_unexpected(std::string(file) + ":" + std::to_string(at.line) + ":" +
                               std::to_string(column) + ": " + std::string(error.description()));
  }
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
  const auto table = ParseToml(toml, file_name, 0);
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
      auto rule = RuleReader(*node.as_table(), file_name, 0).Read(rules.size() + 1, vocabulary);
      if (!rule) return tl::make_unexpected(std::move(rule.error()));
      rules.push_back(std::move(*rule));
    }
  }
  return Checked(std::move(rules), file_name);
}

Parsed<Rule> ParseRule(std::string_view keys, size_t number, const Vocabulary& vocabulary) {
  static constexpr std::string_view kBefore = "fault = { ", kFile = "rule";
  const std::string text = std::string(kBefore) + std::string(keys) + " }";
  const auto table = ParseToml(text, kFile, kBefore.size());
  if (!table) return tl::make_unexpected(table.error());
  const toml::table* const rule = table->get_as<toml::table>("fault");
  if (rule == nullptr || table->size() != 1) {
    return tl::make_unexpected(std::string("rule: must be keys of one rule, such as: ") +
                               "at = \"cm.req\", nth = 3, reject = 28");
  }
  return RuleReader(*rule, kFile, kBefore.size()).Read(number, vocabulary);
}

std::string PlaceName(Point point, std::string_view subject) {
  std::string name = kPointNames[static_cast<size_t>(point)];
  if (!subject.empty()) name.append(".").append(subject);
  return name;
}

std::string ActionText(const Action& action) {
  struct Text {
    std::string operator()(const Drop&) const { return "drop = true"; }
    std::string operator()(const Delay& delay) const {
      const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(delay.time);
      return "delay_ms = " + std::to_string(time.count());
    }
    std::string operator()(const Duplicate& duplicate) const {
      return "duplicate = " + std::to_string(duplicate.copies);
    }
    std::string operator()(const Reject& reject) const {
      return "reject = " + std::to_string(reject.reason);
    }
    std::string operator()(const FailCall& fail) const {
      const char* const name = strerrorname_np(fail.errno_value);
      return "errno = \"" + std::string(name == nullptr ? "?" : name) +
             (fail.takes_effect ? "\", takes_effect = true" : "\"");
    }
    std::string operator()(const ChangeEvent& change) const {
      std::string text;
      if (change.event) text = "event = " + std::to_string(*change.event);
      if (change.status) {
        text += (text.empty() ? "status = " : ", status = ") + std::to_string(*change.status);
      }
      return text;
    }
  };
  return std::visit(Text{}, action);
}

}  // namespace rdmaemu::fault
