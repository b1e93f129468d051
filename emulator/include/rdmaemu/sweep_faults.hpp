// A sweep in a unit test: SweepFaults runs a body once without faults to learn at which places
// faults are possible, then once for each place and fault. Each run has new hosts in this process.
// Header only, for any test framework. `rdmaemu sweep` does the same for whole programs.
#pragma once

#include <rdmaemu/fault_points.hpp>
#include <rdmaemu/framework.hpp>
#include <rdmaemu/rdmaemu.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmaemu::testing {

struct SweepOptions {
  EmbeddingOptions hosts = {};           // of each run
  std::vector<std::string> points = {};  // such as "call.*"; '*' is any text; empty: all
  std::vector<std::string> faults = {};  // such as "errno=*"; empty: all
  uint64_t per_site = 3;                 // moments of one place: first, last, between; 0: all
  uint64_t max_runs = 0;                 // 0: no limit
};

namespace detail {

inline bool MatchesPattern(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= text.size(); at++) {
    if (MatchesPattern(rest, text.substr(at))) return true;
  }
  return false;
}

inline bool IsChosen(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& each) {
           return MatchesPattern(each, text);
         });
}

// Returns how often the body passed each place, without a fault. Throws EmbeddingError when a host
// cannot be opened. Sets `reason` when the body fails.
template <class Body>
std::vector<std::pair<std::string, uint64_t>> PassedPlaces(const SweepOptions& options, Body&& body,
                                                           std::string& reason) {
  // Programs may poll and arm millions of times.
  const std::set<std::string> left_out = {"call.poll_cq", "call.req_notify_cq"};
  const Embedding hosts(options.hosts);
  std::vector<std::pair<std::string, std::string>> rules;  // of a place
  for (const char* point : {"call", "cm", "event", "wc", "packet", "memory"}) {
    for (const FaultPoint& each : PointsAt(point, "")) {
      if (left_out.count(each.name) > 0 || !IsChosen(options.points, each.name)) continue;
      if (Checked(rdmaemu_rule_faults(each.name.c_str(), nullptr, 0)) == 0) continue;
      char name[sizeof rdmaemu_rule::name];
      Checked(rdmaemu_rule_add(("at = \"" + each.name + "\"").c_str(), name, sizeof name));
      rules.push_back({each.name, name});
    }
  }
  reason = WhyBodyFails(body);
  std::vector<std::pair<std::string, uint64_t>> places;
  std::vector<rdmaemu_rule> counted(static_cast<size_t>(std::max(rdmaemu_rules(nullptr, 0), 0)));
  rdmaemu_rules(counted.data(), counted.size());
  for (const auto& [place, name] : rules) {
    const auto rule = std::find_if(counted.begin(), counted.end(),
                                   [&name = name](const auto& each) { return each.name == name; });
    if (rule != counted.end() && rule->fired > 0) places.push_back({place, rule->fired});
  }
  return places;
}

inline std::vector<uint64_t> ChosenMoments(uint64_t moments, uint64_t most) {
  std::vector<uint64_t> chosen;
  const bool all = most == 0 || moments <= most;
  const uint64_t count = all ? moments : most;
  for (uint64_t i = 0; i < count; i++) {
    chosen.push_back(all || most == 1 ? 1 + i : 1 + i * (moments - 1) / (most - 1));
  }
  return chosen;
}

// Returns the points of a sweep: "call.reg_mr#2: errno=ENOMEM" and its rule.
inline std::vector<FaultPoint> PlanOf(const std::vector<std::pair<std::string, uint64_t>>& places,
                                      const SweepOptions& options) {
  std::vector<FaultPoint> plan;
  for (const auto& [place, moments] : places) {
    std::string faults(
        static_cast<size_t>(Checked(rdmaemu_rule_faults(place.c_str(), nullptr, 0))) + 1, '\0');
    Checked(rdmaemu_rule_faults(place.c_str(), faults.data(), faults.size()));
    faults.pop_back();
    for (const uint64_t nth : ChosenMoments(moments, options.per_site)) {
      std::istringstream lines(faults);
      for (std::string line; std::getline(lines, line);) {
        const std::string name = line.substr(0, line.find('\t'));
        if (!IsChosen(options.faults, name)) continue;
        const std::string number = std::to_string(nth);
        plan.push_back(
            {place + "#" + number + ": " + name,
             "at = \"" + place + "\", nth = " + number + ", " + line.substr(name.size() + 1)});
      }
    }
  }
  if (options.max_runs > 0 && plan.size() > options.max_runs) plan.resize(options.max_runs);
  return plan;
}

}  // namespace detail

// Runs `body` under each fault of the sweep. The body opens what it uses and closes it again. It
// fails as in ForEachFault: it throws, returns false, or records a failure. Under a fault the
// body's calls may fail, so the body checks what must hold in spite of that. Each point that fails
// is a failure of the test, with its rule. Call this without open hosts. Fails the test when the
// body fails without a fault, or when no place has a fault.
template <class Body>
FaultReport SweepFaults(const SweepOptions& options, Body&& body) {
  Require(Need::kHosts);
  Require(Need::kRules);
  FaultReport report;
  std::string reason;
  const auto places = detail::PassedPlaces(options, body, reason);
  if (!reason.empty()) {
    Fail("the body fails without a fault: " + reason);
    return report;
  }
  const std::vector<FaultPoint> plan = detail::PlanOf(places, options);
  if (plan.empty()) {
    Fail("there is nothing to sweep: the body passed " + std::to_string(places.size()) +
         " places that have faults, and none is chosen");
  }
  for (const FaultPoint& point : plan) {
    const Framework& framework = TheFramework();
    std::shared_ptr<void> label;
    if (framework.label != nullptr) {
      label = framework.label("fault " + point.name + ": " + point.rule);
    }
    const Embedding hosts(options.hosts);
    FaultOutcome outcome = detail::RunAt(point, body);
    if (outcome.kind == FaultOutcome::kFailed) {
      Fail("fault " + point.name + " (" + point.rule + "): " + outcome.reason);
    }
    report.Add(std::move(outcome));
  }
  return report;
}

}  // namespace rdmaemu::testing
