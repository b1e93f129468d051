#include "emulator/fault/rules.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdmaemu::fault {
namespace {

constexpr uint64_t kSharedFlow = 0;

// FNV-1a. The keys of generators must be the same on every machine.
constexpr uint64_t kFnvBasis = 0xcbf29ce484222325, kFnvPrime = 0x100000001b3;
uint64_t Mix(uint64_t hash, const void* bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * kFnvPrime;
  }
  return hash;
}

// Hashes the two ends of a flow. The result is never kSharedFlow.
uint64_t FlowOf(const Moment& moment) {
  uint64_t hash = kFnvBasis;
  if (moment.local) hash = Mix(hash, moment.local->bytes.data(), moment.local->bytes.size());
  if (moment.remote) hash = Mix(hash, moment.remote->bytes.data(), moment.remote->bytes.size());
  if (moment.service_port) hash = Mix(hash, &*moment.service_port, sizeof *moment.service_port);
  // The QP's order, not its number, which another run may draw differently.
  if (moment.qp_order) hash = Mix(hash, &*moment.qp_order, sizeof *moment.qp_order);
  return hash | 1;
}

RandomSeed SeedFor(RandomSeed seed, std::string_view rule, uint64_t flow) {
  const uint64_t name = Mix(kFnvBasis, rule.data(), rule.size());
  seed.key[4] ^= static_cast<uint32_t>(name);
  seed.key[5] ^= static_cast<uint32_t>(name >> 32);
  seed.key[6] ^= static_cast<uint32_t>(flow);
  seed.key[7] ^= static_cast<uint32_t>(flow >> 32);
  return seed;
}

template <class Wanted, class Is>
bool IsThat(const std::optional<Wanted>& wanted, const std::optional<Is>& is) {
  return !wanted || wanted == is;
}
bool IsNamed(const std::string& wanted, std::string_view is) {
  return wanted.empty() || wanted == is;
}
bool IsIn(const std::optional<NetPrefix>& wanted, const std::optional<NetAddress>& is) {
  return !wanted || (is && wanted->Contains(*is));
}
bool Touches(const std::optional<MemoryRange>& wanted, const std::optional<MemoryRange>& is) {
  return !wanted || (is && wanted->address < is->address + is->length &&
                     is->address < wanted->address + wanted->length);
}
bool IsWithin(const std::optional<uint64_t>& least, const std::optional<uint64_t>& most,
              const std::optional<uint64_t>& is) {
  return (!least || (is && *is >= *least)) && (!most || (is && *is <= *most));
}

}  // namespace

Status Rules::Add(Rule rule, std::optional<Time> now) {
  if (rules_.size() >= kMaxRules) return Fail(ENOSPC);
  if (Find(rule.name) != nullptr) return Fail(EEXIST);
  watched_[static_cast<size_t>(rule.point)]++;
  rules_.push_back({std::move(rule), 0, 0, {}, {}});
  if (now) Began(rules_.back(), *now);
  return {};
}

Status Rules::Remove(std::string_view name) {
  const auto it = std::ranges::find(
      rules_, name, [](const RuleState& state) { return std::string_view(state.rule.name); });
  if (it == rules_.end()) return Fail(ENOENT);
  watched_[static_cast<size_t>(it->rule.point)]--;
  std::erase_if(generators_, [&](const auto& one) { return one.first.rule == name; });
  if (const auto flows = flows_.find(name); flows != flows_.end()) flows_.erase(flows);
  rules_.erase(it);
  return {};
}

void Rules::Clear() {
  rules_.clear();
  for (Counts& counts : seen_) counts.clear();
  watched_ = {};
  generators_.clear();
  flows_.clear();
}

void Rules::Begin(Time now) {
  for (RuleState& state : rules_) {
    if (!state.began) Began(state, now);
  }
}

void Rules::Began(RuleState& state, Time now) {
  state.began = now;
  if (state.rule.point != Point::kTime) return;
  if (state.rule.match.after.empty() || HasFired(state.rule.match.after)) {
    state.due = now + state.rule.match.at;
  }
}

void Rules::FirstFired(const std::string& name, Time now) {
  for (RuleState& state : rules_) {
    if (state.rule.point == Point::kTime && state.rule.match.after == name) {
      state.due = now + state.rule.match.at;
    }
  }
}

std::optional<Time> Rules::NextTime() const {
  if (!Watches(Point::kTime)) return std::nullopt;
  Earliest next;
  for (const RuleState& state : rules_) next.Note(state.due);
  return next.deadline();
}

std::optional<Rules::TimeDecision> Rules::DecideTime(Time now) {
  const auto next = std::ranges::min_element(rules_, [](const RuleState& a, const RuleState& b) {
    return a.due && (!b.due || *a.due < *b.due);
  });
  if (next == rules_.end() || !next->due || *next->due > now) return std::nullopt;
  Moment moment{};
  moment.point = Point::kTime;
  moment.now = *next->due;
  const std::optional<Duration>& repeat = next->rule.match.repeat;
  next->due = repeat ? std::optional(*next->due + *repeat) : std::nullopt;
  if (!Matches(*next, moment)) return TimeDecision{moment, nullptr};
  next->matched++;
  if (!IsDue(*next, moment)) return TimeDecision{moment, nullptr};
  if (next->fired++ == 0) FirstFired(next->rule.name, now);
  return TimeDecision{moment, &next->rule};
}

bool Rules::Watches(Point point, std::string_view subject) const {
  return std::ranges::any_of(rules_, [&](const RuleState& state) {
    return state.rule.point == point && state.rule.IsAt(subject);
  });
}

const Rule* Rules::Decide(const Moment& moment) {
  const Rule* decides = nullptr;
  witnesses_.clear();
  Count(moment);
  for (RuleState& state : rules_) {
    if (state.rule.point != moment.point || !Matches(state, moment)) continue;
    state.matched++;
    if (decides != nullptr || !IsDue(state, moment)) continue;
    if (state.fired++ == 0) FirstFired(state.rule.name, moment.now);
    if (std::holds_alternative<Pass>(state.rule.action)) {
      witnesses_.push_back(&state.rule);
    } else {
      decides = &state.rule;
    }
  }
  return decides;
}

// Counts a moment. An RDMA CM event has two moments. Only the first one counts, because every event
// has it.
void Rules::Count(const Moment& moment) {
  if (moment.point == Point::kCmEvent && !moment.is_before_queue) return;
  Counts& counts = seen_[static_cast<size_t>(moment.point)];
  const auto found = counts.find(moment.subject);
  if (found != counts.end()) {
    found->second++;
  } else {
    counts.emplace(moment.subject, 1);
  }
}

bool Rules::Matches(RuleState& state, const Moment& moment) const {
  const Match& match = state.rule.match;
  const bool is_before_queue =
      state.rule.point == Point::kCmEvent && (std::holds_alternative<Hold>(state.rule.action) ||
                                              std::holds_alternative<Delay>(state.rule.action) ||
                                              std::holds_alternative<Drop>(state.rule.action));
  if (is_before_queue != moment.is_before_queue) return false;
  if (!state.began) state.began = moment.now;
  const Duration at = moment.now - *state.began;
  return state.rule.IsAt(moment.subject) && IsNamed(match.program, moment.program) &&
         IsNamed(match.device, moment.device) && IsThat(match.direction, moment.direction) &&
         IsIn(match.local, moment.local) && IsIn(match.remote, moment.remote) &&
         IsThat(match.service_port, moment.service_port) && IsThat(match.qp, moment.qp) &&
         IsThat(match.qp_order, moment.qp_order) && IsThat(match.index, moment.index) &&
         IsThat(match.mr_order, moment.mr_order) && Touches(match.memory, moment.memory) &&
         IsWithin(match.min_bytes, match.max_bytes, moment.bytes) &&
         (!match.from || at >= *match.from) && (!match.until || at < *match.until) &&
         (match.after.empty() || HasFired(match.after));
}

const RuleState* Rules::Find(std::string_view name) const {
  const auto it = std::ranges::find(
      rules_, name, [](const RuleState& state) { return std::string_view(state.rule.name); });
  return it == rules_.end() ? nullptr : &*it;
}

bool Rules::HasFired(std::string_view name) const {
  const RuleState* const state = Find(name);
  return state != nullptr && state->fired > 0;
}

bool Rules::IsDue(RuleState& state, const Moment& moment) {
  const Frequency& often = state.rule.frequency;
  const uint64_t count = state.matched;
  if (often.nth != 0 && (often.onward ? count < often.nth : count != often.nth)) return false;
  if (often.every != 0 && count % often.every != 0) return false;
  if (often.first != 0 && count > often.first) return false;
  // Draw even after the last allowed firing. Later draws then do not depend on the limit.
  const Action& action = state.rule.action;
  const double share = often.probability * (LosesAlone(action) ? std::get<Link>(action).loss : 1);
  const bool drawn = share >= 1 || Draw(state.rule.name, moment) < share;
  return drawn && (often.times == 0 || state.fired < often.times);
}

double Rules::Draw(const std::string& name, const Moment& moment) {
  FlowKey key{name, FlowOf(moment)};
  auto it = generators_.find(key);
  if (it == generators_.end()) {
    size_t& flows = flows_[name];
    if (flows >= kMaxFlowsPerRule) key.flow = kSharedFlow;
    const uint64_t flow = key.flow;
    const auto [made, is_new] = generators_.try_emplace(std::move(key), SeedFor(seed_, name, flow));
    if (is_new) flows++;
    it = made;
  }
  // 53 bits, the precision of a double.
  return static_cast<double>(it->second.Next64() >> 11) * 0x1p-53;
}

}  // namespace rdmaemu::fault
