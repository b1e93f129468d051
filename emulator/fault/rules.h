// The fault rules of one host, in their order, with how often each matched and fired. The first
// rule that fires decides; those behind it still count what they match. A rule draws from
// generators of its own, one a flow, keyed by (seed, rule's name, flow): what one rule or flow
// draws never shifts what another does.
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
  std::optional<Time> began;  // from when its times count
  std::optional<Time> due;    // at Point::kTime: when it is the next time
};

class Rules {
 public:
  static constexpr size_t kMaxRules = 256;  // their list fits one reply
  // Flows of one rule that have a generator each; those beyond share one.
  static constexpr size_t kMaxFlowsPerRule = 4096;

  explicit Rules(const RandomSeed& seed) : seed_(seed) {}

  // Behind all others. `now` is from when its times count; without it, from Begin on. EEXIST:
  // there is one of that name; ENOSPC: too many.
  Status Add(Rule rule, std::optional<Time> now = {});
  // The host's first moment.
  void Begin(Time now);
  // ENOENT.
  Status Remove(std::string_view name);
  void Clear();
  const RuleState* Find(std::string_view name) const;  // nullptr: there is none
  std::span<const RuleState> all() const { return rules_; }
  // How many moments there were at the point, by subject, while a rule was there.
  using Counts = std::map<std::string, uint64_t, std::less<>>;
  const Counts& SeenAt(Point point) const { return seen_[static_cast<size_t>(point)]; }

  // Cheap: whether it is worth describing a moment there.
  bool Watches(Point point) const { return watched_[static_cast<size_t>(point)] > 0; }
  // The same for one subject there; looks at every rule.
  bool Watches(Point point, std::string_view subject) const;
  // What happens at this moment; nothing where no rule fires that does something. The rule is valid
  // until the next change of the list.
  const Rule* Decide(const Moment& moment);
  // Those that fired at the latest moment and do nothing (Pass); valid as that.
  std::span<const Rule* const> witnesses() const { return witnesses_; }
  // The next number in [0, 1) of the rule's generator for the moment's flow.
  double Draw(const std::string& rule, const Moment& moment);
  // When the next rule at Point::kTime is due.
  std::optional<Time> NextTime() const;
  // Takes the first that is, which may not fire; nothing when none is. `moment` is told.
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
  // A rule fired for the first time: those at a time after it begin.
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
