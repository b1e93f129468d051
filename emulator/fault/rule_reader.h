// Reads one [[fault]] table into a rule, and keeps the first error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/toml.h"
#include "emulator/fault/grammar.h"
#include "emulator/fault/scenario.h"

namespace rdmaemu::fault {

struct Position {
  uint32_t line, column;
};
// `column_shift`: number of characters before the user's text on its line.
Position PositionOf(const toml::node& node, uint32_t column_shift = 0);
// "FILE:LINE:COLUMN: WHAT"
std::string Mistake(std::string_view file, Position at, const std::string& what);

inline constexpr size_t kMaxNameBytes = 128;

class RuleReader {
 public:
  // `column_shift`: number of characters before the user's text on its line.
  RuleReader(const toml::table& table, std::string_view file, uint32_t column_shift,
             const Vocabulary& vocabulary)
      : table_(table), file_(file), column_shift_(column_shift), vocabulary_(vocabulary) {}

  // Reads the rule. A rule without a name is called "rule NUMBER".
  Parsed<Rule> Read(size_t number);

 private:
  const toml::node* Get(std::string_view key) const { return table_.get(key); }
  void Wrong(const toml::node& node, const std::string& what);
  void WrongAt(std::string_view key, const std::string& what) { Wrong(*Get(key), what); }

  bool ReadText(std::string_view key, std::string& to);
  std::optional<uint64_t> ReadNumber(std::string_view key, uint64_t least, uint64_t most);
  std::optional<int> ReadSigned(std::string_view key, const char* what);
  template <class Number>
  void ReadNumber(std::string_view key, uint64_t least, uint64_t most, std::optional<Number>& to) {
    if (const auto value = ReadNumber(key, least, most)) to = static_cast<Number>(*value);
  }
  void ReadTime(std::string_view key, std::optional<Duration>& to);
  Duration TimeOf(std::string_view key);
  void ReadPrefix(std::string_view key, std::optional<NetPrefix>& to);
  // Reads a number above 0 and at most 1.
  void ReadShare(std::string_view key, double& to);
  bool ReadFlag(std::string_view key);
  // Reads a flag that only has an effect when true. The value false is an error.
  void ReadTrue(std::string_view key);
  // Returns the index of the key's word in `words`. `what` is "errno", "event", ... for the
  // message. Except for errnos, the words are in the order of their numbers in C, so that an error
  // can suggest the word of a number.
  std::optional<size_t> ReadWord(std::string_view key, const char* what,
                                 const std::vector<std::string>& words);

  // rule_place.cc
  void ReadPlaces();
  // Reads the point and subject of one place from `node`. Returns false after an error.
  bool ReadPlace(const toml::node& node);
  void WrongPoint(const toml::node& node, const std::string& place);
  // Returns the rule's places for messages: "cm.req, cm.rep".
  std::string Places() const;
  // Returns true when the key is allowed at one of the rule's places.
  bool CanStandHere(const Key& key) const;

  void CheckKeys();
  bool HasDeed() const;
  void ReadMatch();
  void ReadDirection();
  void ReadMemory();
  void ReadFrequency();

  // rule_actions.cc
  void ReadAction();
  std::string_view ChooseAction();
  void CheckDetails(std::string_view action);
  Action TakeAction(std::string_view action);
  Action ReadErrno();
  Action ReadReject();
  std::vector<uint8_t> ReadPrivateData();
  Action ReadUnreachable();
  Action ReadStatus();
  Action ReadAsync();
  Action ReadLink();
  Deed ReadDeed(std::string_view action);
  Deed ReadRemoveDevice();
  Deed ReadPort();
  Deed ReadPkey();
  NetAddress ReadAddress(std::string_view key);
  std::optional<Duration> ReadReturn();
  // Reports an error unless the rule's subjects are all in `subjects`. The error lists the allowed
  // places.
  void CheckSubject(std::string_view action, const std::vector<std::string>& subjects);

  const toml::table& table_;
  std::string_view file_;
  uint32_t column_shift_;
  const Vocabulary& vocabulary_;
  std::string error_;
  Rule rule_{};
};

}  // namespace rdmaemu::fault
