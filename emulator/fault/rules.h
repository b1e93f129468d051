// The fault rules of one host, in order, with the number of matches and firings of each. The first
// rule that fires decides. The rules after it still count their matches. Each rule has one random
// generator per flow, keyed by (seed, rule's name, flow). Draws of one rule or flow never change
// the draws of another.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

struct RuleState {
  Rule rule;
  uint64_t matched = 0, fired = 0;
  std::optional<Time> began;  // start of its times
  std::optional<Time> due;    // at Point::kTime: its next deadline
};

class Rules {
 public:
  static constexpr size_t kMaxRules = 256;  // so that their list fits into one reply
  // Flows of one rule with their own generator. Further flows share one generator.
  static constexpr size_t kMaxFlowsPerRule = 4096;

  explicit Rules(const RandomSeed& seed) : seed_(seed) {}

  // Appends a rule. `now` is the start of the rule's times. Without `now`, Begin sets the start.
  // EEXIST: a rule of this name exists. ENOSPC: there are kMaxRules rules.
  Status Add(Rule rule, std::optional<Time> now = {});
  // Starts the times of the rules. Call it once, when the host starts.
  void Begin(Time now);
  // Removes a rule. ENOENT: there is no rule of this name.
  Status Remove(std::string_view name);
  void Clear();
  const RuleState* Find(std::string_view name) const;  // nullptr: not found
  std::span<const RuleState> all() const { return rules_; }
  // The moments at a point by subject, counted while the point had a rule.
  using Counts = std::map<std::string, uint64_t, std::less<>>;
  const Counts& SeenAt(Point point) const { return seen_[static_cast<size_t>(point)]; }

  // Returns true when the point has a rule. Otherwise the caller need not describe a Moment. Cheap.
  bool Watches(Point point) const { return watched_[static_cast<size_t>(point)] > 0; }
  // Returns true when the point has a rule for this subject. Searches all rules.
  bool Watches(Point point, std::string_view subject) const;
  // Returns the rule whose action applies to this moment, or nullptr. Counts matches and firings.
  // The rule is valid until the next change of the list.
  const Rule* Decide(const Moment& moment);
  // Returns the rules without an action (Pass) that fired at the latest moment. The rules are valid
  // until the next change of the list.
  std::span<const Rule* const> witnesses() const { return witnesses_; }
  // Returns the next number in [0, 1) from the rule's generator for the moment's flow.
  double Draw(const std::string& rule, const Moment& moment);
  // Returns the earliest deadline of the rules at Point::kTime.
  std::optional<Time> NextTime() const;
  // Decides the earliest deadline that is not after `now`. Returns nothing when no deadline is due.
  // `moment` describes the deadline.
  struct TimeDecision {
    Moment moment;
    const Rule* rule;  // nullptr: it did not fire
  };
  std::optional<TimeDecision> DecideTime(Time now);

 private:
  struct FlowKey {
    std::string rule;
    uint64_t flow;
    auto operator<=>(const FlowKey&) const = default;
  };

  void Count(const Moment& moment);
  void Began(RuleState& state, Time now);
  // Starts the times of rules at Point::kTime whose `after` names this rule. Call it at the first
  // firing.
  void FirstFired(const std::string& name, Time now);
  bool Matches(RuleState& state, const Moment& moment) const;
  bool HasFired(std::string_view name) const;
  bool IsDue(RuleState& state, const Moment& moment);

  RandomSeed seed_;
  std::vector<RuleState> rules_;
  std::vector<const Rule*> witnesses_;
  std::array<uint32_t, kPoints> watched_{};
  std::array<Counts, kPoints> seen_;
  std::map<FlowKey, Random> generators_;
  std::map<std::string, size_t, std::less<>> flows_;  // generators of each rule
};

}  // namespace rdmaemu::fault
