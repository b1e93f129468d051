// Reads one [[fault]] table into a rule, and remembers the first thing that is wrong with it.
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
// `column_shift`: what stands before it on its line and is not the user's.
Position PositionOf(const toml::node& node, uint32_t column_shift = 0);
// "FILE:LINE:COLUMN: WHAT"
std::string Mistake(std::string_view file, Position at, const std::string& what);

inline constexpr size_t kMaxNameBytes = 128;

class RuleReader {
 public:
  // `column_shift`: what stands before the rule on its line and is not the user's.
  RuleReader(const toml::table& table, std::string_view file, uint32_t column_shift,
             const Vocabulary& vocabulary)
      : table_(table), file_(file), column_shift_(column_shift), vocabulary_(vocabulary) {}

  // A rule without a name is called "rule NUMBER".
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
  // A number above 0 and at most 1.
  void ReadShare(std::string_view key, double& to);
  bool ReadFlag(std::string_view key);
  // A flag that does nothing when it is false, and so is not written then.
  void ReadTrue(std::string_view key);
  // Index of the word among the words; `what` is "errno", "event", ... Except errnos they stand in
  // the order of their numbers, by which a C program knows them.
  std::optional<size_t> ReadWord(std::string_view key, const char* what,
                                 const std::vector<std::string>& words);

  // rule_place.cc
  void ReadPlaces();
  // The point and subject of one place, which `node` names. False: something is wrong.
  bool ReadPlace(const toml::node& node);
  void WrongPoint(const toml::node& node, const std::string& place);
  // "cm.req, cm.rep" for messages.
  std::string Places() const;
  // Whether the key can stand at one of the rule's places.
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
  // The rule's subject is one of these; otherwise says that the action stands there alone.
  void CheckSubject(std::string_view action, const std::vector<std::string>& subjects);

  const toml::table& table_;
  std::string_view file_;
  uint32_t column_shift_;
  const Vocabulary& vocabulary_;
  std::string error_;
  Rule rule_{};
};

}  // namespace rdmaemu::fault
