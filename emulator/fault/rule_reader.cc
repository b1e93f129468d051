#include "emulator/fault/rule_reader.h"

#include <algorithm>
#include <limits>

#include "emulator/fault/scenario.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

constexpr uint64_t kMostMilliseconds = 1'000'000'000;  // eleven days; nanoseconds do not overflow
constexpr uint64_t kMostBytes = 1ull << 31;            // of a message
constexpr uint64_t kMostCount = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMostQpNumber = (1 << 24) - 1;

bool IsControl(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

Position PositionOf(const toml::node& node, uint32_t column_shift) {
  const toml::source_position at = node.source().begin;
  return {at.line, at.column > column_shift ? at.column - column_shift : 1};
}

std::string Mistake(std::string_view file, Position at, const std::string& what) {
  return std::string(file) + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) +
         ": " + what;
}

Parsed<Rule> RuleReader::Read(size_t number) {
  rule_.name = UnnamedRule(number);
  if (ReadText("name", rule_.name) && std::ranges::any_of(rule_.name, IsControl)) {
    WrongAt("name", "name must not have control characters");
  }
  ReadPlaces();
  CheckKeys();
  if (error_.empty()) {
    ReadMatch();
    ReadFrequency();
    ReadAction();
  }
  if (!error_.empty()) return tl::make_unexpected(error_);
  return std::move(rule_);
}

void RuleReader::Wrong(const toml::node& node, const std::string& what) {
  if (error_.empty()) error_ = Mistake(file_, PositionOf(node, column_shift_), what);
}

// ---- values

bool RuleReader::ReadText(std::string_view key, std::string& to) {
  const toml::node* const node = Get(key);
  if (node == nullptr) return false;
  const auto text = node->value_exact<std::string>();
  if (text && !text->empty() && text->size() <= kMaxNameBytes) {
    to = *text;
    return true;
  }
  Wrong(*node,
        std::string(key) + " must be a string of 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  return false;
}

std::optional<uint64_t> RuleReader::ReadNumber(std::string_view key, uint64_t least,
                                               uint64_t most) {
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

std::optional<int> RuleReader::ReadSigned(std::string_view key, const char* what) {
  const toml::node* const node = Get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<int64_t>();
  if (value && *value >= INT32_MIN && *value <= INT32_MAX) return static_cast<int>(*value);
  Wrong(*node, std::string(key) + " must be an integer of 32 bits: " + what);
  return std::nullopt;
}

void RuleReader::ReadTime(std::string_view key, std::optional<Duration>& to) {
  if (const auto value = ReadNumber(key, 0, kMostMilliseconds)) {
    to = std::chrono::milliseconds(*value);
  }
}

Duration RuleReader::TimeOf(std::string_view key) {
  std::optional<Duration> time;
  ReadTime(key, time);
  return time.value_or(Duration::zero());
}

void RuleReader::ReadPrefix(std::string_view key, std::optional<NetPrefix>& to) {
  std::string text;
  if (!ReadText(key, text)) return;
  to = NetPrefix::Parse(text);
  if (!to) {
    WrongAt(key, Quoted(text) + " is not an IPv4 or IPv6 address, or a network such as " +
                     "\"10.0.0.0/8\"");
  }
}

void RuleReader::ReadShare(std::string_view key, double& to) {
  const toml::node* const node = Get(key);
  if (node == nullptr) return;
  const auto value = node->value<double>();
  if (value && *value > 0 && *value <= 1) {
    to = *value;
  } else {
    Wrong(*node, std::string(key) + " must be a number above 0 and at most 1");
  }
}

bool RuleReader::ReadFlag(std::string_view key) {
  const toml::node* const node = Get(key);
  if (node == nullptr) return false;
  const auto value = node->value_exact<bool>();
  if (!value) Wrong(*node, std::string(key) + " must be true or false");
  return value.value_or(false);
}

void RuleReader::ReadTrue(std::string_view key) {
  if (!ReadFlag(key)) WrongAt(key, std::string(key) + " must be true");
}

std::optional<size_t> RuleReader::ReadWord(std::string_view key, const char* what,
                                           const std::vector<std::string>& words) {
  const toml::node* const node = Get(key);
  if (node == nullptr) return std::nullopt;
  if (const auto number = node->value_exact<int64_t>()) {
    const auto index = static_cast<uint64_t>(*number);
    std::optional<std::string> meant;
    if (key == "errno") {
      meant = ErrnoName(*number);
    } else if (index < words.size()) {
      meant = words[index];
    }
    Wrong(*node, std::string(key) + " is a word and not a number; " +
                     (meant ? DidYouMean(*meant) : OneOf(words)));
    return std::nullopt;
  }
  const std::string word = node->value_exact<std::string>().value_or("");
  if (word.empty() || word.size() > kMaxNameBytes) {
    Wrong(*node, std::string(key) + " must be a word; " + OneOf(words));
    return std::nullopt;
  }
  const auto found = std::ranges::find(words, word);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  WrongAt(key,
          std::string("there is no ") + what + " " + Quoted(word) + "; " + Instead(word, words));
  return std::nullopt;
}

// ---- keys

// Reports an unknown key, or a key that selects moments and has no meaning at this point.
// TakeAction and its callers report a wrong action.
void RuleReader::CheckKeys() {
  for (const auto& [name, node] : table_) {
    const Key* const key = FindKey(name.str());
    if (key == nullptr) {
      std::vector<std::string> words;
      for (const Key& each : Keys()) words.emplace_back(each.name);
      Wrong(node, Quoted(name.str()) + " is not a key of a rule; " + Instead(name.str(), words));
    } else if (key->name == "device" && HasDeed()) {
      continue;
    } else if (key->role == Role::kMatch && !CanStandHere(*key)) {
      std::vector<std::string> possible;
      for (const Key& each : Keys()) {
        if (each.role == Role::kMatch && CanStandHere(each)) possible.emplace_back(each.name);
      }
      Wrong(node, std::string(key->name) + " does not apply at " + Quoted(Places()) +
                      "; the keys there are: " + Listed(possible));
    }
  }
}

bool RuleReader::HasDeed() const {
  return std::ranges::any_of(
      Keys(), [&](const Key& key) { return Get(key.name) != nullptr && IsDeed(key.name); });
}

void RuleReader::ReadDirection() {
  std::string direction;
  if (!ReadText("direction", direction)) return;
  if (direction == "send") {
    rule_.match.direction = Direction::kSend;
  } else if (direction == "receive") {
    rule_.match.direction = Direction::kReceive;
  } else {
    WrongAt("direction", "direction must be \"send\" or \"receive\"");
  }
}

void RuleReader::ReadMatch() {
  Match& match = rule_.match;
  ReadDirection();
  ReadText("host", match.host);
  ReadText("program", match.program);
  ReadText("device", match.device);
  ReadText("after", match.after);
  ReadPrefix("local", match.local);
  ReadPrefix("remote", match.remote);
  ReadNumber("service_port", 1, 65535, match.service_port);
  ReadNumber("qp", 0, kMostQpNumber, match.qp);
  ReadNumber("qp_order", 1, UINT32_MAX, match.qp_order);
  ReadNumber("mr_order", 1, UINT32_MAX, match.mr_order);
  ReadMemory();
  ReadNumber("index", 1, kMostCount, match.index);
  ReadNumber("min_bytes", 0, kMostBytes, match.min_bytes);
  ReadNumber("max_bytes", 0, kMostBytes, match.max_bytes);
  ReadTime("from_ms", match.from);
  ReadTime("until_ms", match.until);
  match.at = TimeOf("at_ms");
  if (const auto every = ReadNumber("repeat_ms", 1, kMostMilliseconds)) {
    match.repeat = std::chrono::milliseconds(*every);
  }
  if (rule_.point == Point::kTime && Get("at_ms") == nullptr) {
    Wrong(table_, "at_ms is missing: when the time has come, such as at_ms = 50");
  }
  if (match.min_bytes && match.max_bytes && *match.min_bytes > *match.max_bytes) {
    WrongAt("max_bytes", "max_bytes is less than min_bytes: no message has such a size");
  }
  if (match.from && match.until && *match.from >= *match.until) {
    WrongAt("until_ms", "until_ms is not after from_ms: there is no such time");
  }
}

void RuleReader::ReadMemory() {
  const auto address = ReadNumber("address", 0, kMostCount);
  const auto length = ReadNumber("length", 1, kMostCount);
  if (Get("length") != nullptr && Get("address") == nullptr) {
    WrongAt("length", "length belongs to address");
  }
  // One byte matches any access that contains it.
  if (address) rule_.match.memory = MemoryRange{*address, length.value_or(1)};
}

void RuleReader::ReadFrequency() {
  Frequency& often = rule_.frequency;
  const auto read = [&](std::string_view key, uint64_t& to) {
    to = ReadNumber(key, 1, kMostCount).value_or(to);
  };
  read("nth", often.nth);
  if (Get("onward") != nullptr) {
    ReadTrue("onward");
    if (often.nth == 0) WrongAt("onward", "onward belongs to nth");
    often.onward = true;
  }
  read("every", often.every);
  read("first", often.first);
  read("times", often.times);
  ReadShare("probability", often.probability);
}

}  // namespace rdmaemu::fault
