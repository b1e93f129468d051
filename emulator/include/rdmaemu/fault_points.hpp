// A matrix of faults: ForEachFault runs a body once for each named fault point and reports which
// faults the body survived. Header only, for any test framework.
#pragma once

#include <rdmaemu/fixture.hpp>
#include <rdmaemu/framework.hpp>
#include <rdmaemu/rdmaemu.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmaemu::testing {

// One cell of the matrix. The rule is in the language of docs/faults.md. "": a run without a fault.
struct FaultPoint {
  std::string name;
  std::string rule;
};

// Returns one fault point for each place of a point of docs/faults.md ("call", "cm", "event", "wc",
// "async", "packet", "memory"), in the library's order. Example: the first entry of PointsAt("cm",
// "first = 1, drop = true") is {"cm.req", "at = \"cm.req\", first = 1, drop = true"}. Throws
// EmbeddingError for an unknown point.
inline std::vector<FaultPoint> PointsAt(const std::string& point, const std::string& keys) {
  const int bytes = Checked(rdmaemu_rule_places(point.c_str(), nullptr, 0));
  std::string places(static_cast<size_t>(bytes) + 1, '\0');
  Checked(rdmaemu_rule_places(point.c_str(), places.data(), places.size()));
  places.pop_back();
  std::vector<FaultPoint> points;
  std::istringstream in(places);
  for (std::string place; std::getline(in, place);) {
    points.push_back({place, "at = \"" + place + "\", " + keys});
  }
  return points;
}

// Makes the nth call of each kind fail with this errno, without any effect.
inline std::vector<FaultPoint> CallsFail(const std::string& error = "ENOMEM", uint64_t nth = 1) {
  return PointsAt("call", "nth = " + std::to_string(nth) + ", errno = \"" + error + "\"");
}

// Drops the first `count` CM messages of each kind.
inline std::vector<FaultPoint> CmMessagesLost(uint64_t count = 1) {
  return PointsAt("cm", "first = " + std::to_string(count) + ", drop = true");
}

// Gives the nth completion of each kind this status (ibv_wc_status), which moves its QP to ERR.
inline std::vector<FaultPoint> CompletionsFail(const std::string& status = "retry_exc_err",
                                               uint64_t nth = 1) {
  return PointsAt("wc", "nth = " + std::to_string(nth) + ", status = \"" + status + "\"");
}

// The result of one point.
struct FaultOutcome {
  enum Kind {
    kSurvived,    // the fault happened, and the body did not fail
    kFailed,      // the body threw, returned false, or recorded a failure
    kNeverFired,  // the body did not fail, and the fault did not happen
  };
  FaultPoint point;
  Kind kind = kSurvived;
  uint64_t matched = 0;  // how many moments the rule matched
  bool fired = false;
  std::string reason;  // of kFailed
};

class FaultReport {
 public:
  void Add(FaultOutcome outcome) { outcomes_.push_back(std::move(outcome)); }

  const std::vector<FaultOutcome>& outcomes() const { return outcomes_; }
  std::vector<std::string> Names(FaultOutcome::Kind kind) const {
    std::vector<std::string> names;
    for (const FaultOutcome& each : outcomes_) {
      if (each.kind == kind) names.push_back(each.point.name);
    }
    return names;
  }
  std::vector<std::string> survived() const { return Names(FaultOutcome::kSurvived); }
  std::vector<std::string> failed() const { return Names(FaultOutcome::kFailed); }
  std::vector<std::string> never_fired() const { return Names(FaultOutcome::kNeverFired); }
  // True when no point failed. Points that never fired do not count as failed. Compare
  // never_fired(), too.
  bool ok() const { return failed().empty(); }

  // Returns one line for the whole matrix and one line for each point.
  std::string ToString() const {
    size_t width = 0;
    for (const FaultOutcome& each : outcomes_) width = std::max(width, each.point.name.size());
    std::ostringstream out;
    out << outcomes_.size() << " fault points: " << survived().size() << " survived, "
        << failed().size() << " failed, " << never_fired().size() << " never fired\n";
    for (const FaultOutcome& each : outcomes_) {
      static constexpr const char* kWords[] = {"survived   ", "FAILED     ", "never fired"};
      out << "  " << kWords[each.kind] << "  " << each.point.name
          << std::string(width - each.point.name.size(), ' ') << "  " << each.point.rule;
      if (each.kind == FaultOutcome::kNeverFired && each.matched > 0) {
        out << " (matched " << each.matched << " times)";
      }
      if (!each.reason.empty()) out << ": " << each.reason;
      out << "\n";
    }
    return out.str();
  }

 private:
  std::vector<FaultOutcome> outcomes_;
};

inline std::ostream& operator<<(std::ostream& out, const FaultReport& report) {
  return out << report.ToString();
}

namespace detail {

// Runs the body and returns why the body failed. "": the body did not fail.
template <class Body>
std::string WhyBodyFails(Body&& body) {
  const uint64_t failures_before = FailureCount::Get().failures();
  std::string reason;
  try {
    if constexpr (std::is_same_v<decltype(body()), bool>) {
      if (!body()) reason = "it returned false";
    } else {
      body();
    }
  } catch (const std::exception& failure) {
    if (FailureCount::Get().is_skipping()) throw;
    reason = failure.what();
  } catch (...) {  // frameworks end a test at a failed assertion like this
    if (FailureCount::Get().is_skipping()) throw;
    reason = "it threw what is no std::exception";
  }
  const uint64_t failures = FailureCount::Get().failures() - failures_before;
  if (failures > 0) reason = std::to_string(failures) + " failures of the test";
  return reason;
}

// Runs the body under the rule of one point.
template <class Body>
FaultOutcome RunAt(const FaultPoint& point, Body&& body) {
  FaultOutcome outcome;
  outcome.point = point;
  std::string name;
  if (!point.rule.empty()) {
    char given[sizeof rdmaemu_rule::name];
    if (rdmaemu_rule_add(point.rule.c_str(), given, sizeof given) < 0) {
      outcome.kind = FaultOutcome::kFailed;
      outcome.reason = "the rule cannot be added: " + std::string(rdmaemu_last_error());
      return outcome;
    }
    name = given;
  }
  outcome.reason = WhyBodyFails(body);
  if (!name.empty()) {
    const auto now = FindRule(name);  // also a rule whose host the fault ended
    outcome.matched = now ? now->matched : 0;
    outcome.fired = now && now->fired > 0;
  }
  if (!outcome.reason.empty()) {
    outcome.kind = FaultOutcome::kFailed;
  } else if (!name.empty() && !outcome.fired) {
    outcome.kind = FaultOutcome::kNeverFired;
  }
  return outcome;
}

}  // namespace detail

// Runs `body` once for each point, in order. Adds the point's rule before each run. Removes that
// rule, and all rules that the body added, after each run. A body fails when it throws, returns
// false (where it returns bool), or records a failure in the test framework. The failure's message
// names the point. The hosts stay the same for all points, so the body undoes permanent effects of
// its faults. Add further hosts before this call and not in the body: a process has at most eight
// until rdmaemu_close, and removed hosts count. A point whose rule cannot be added fails: its text
// is wrong, or an earlier fault ended its host. Skips the test on a backend without rules.
template <class Body>
[[nodiscard]] FaultReport ForEachFault(const std::vector<FaultPoint>& points, Body&& body) {
  Require(Need::kRules);
  FaultReport report;
  const RulesBefore rules_before;
  for (const FaultPoint& point : points) {
    const Framework& framework = TheFramework();
    std::shared_ptr<void> label;
    if (framework.label != nullptr) {
      label = framework.label("fault point " + point.name + ": " + point.rule);
    }
    try {
      report.Add(detail::RunAt(point, body));
    } catch (...) {
      rules_before.RemoveOthers();
      throw;
    }
    rules_before.RemoveOthers();
  }
  return report;
}

}  // namespace rdmaemu::testing
