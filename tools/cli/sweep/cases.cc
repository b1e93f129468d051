#include "tools/cli/sweep/cases.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "emulator/host/faults/host_faults.h"
#include "tools/cli/system_host/decisions.h"

namespace rdmaemu::cli {
namespace {

constexpr std::string_view kAnd = " + ";

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text) {
  return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
           return fault::MatchesPattern(pattern, text);
         });
}

std::optional<SweepFaultAt> ParseFaultAt(std::string_view text) {
  const size_t hash = text.find('#'), colon = text.find(": ");
  if (hash == text.npos || colon == text.npos || hash > colon) return std::nullopt;
  SweepFaultAt parsed;
  parsed.moment.place = text.substr(0, hash);
  const std::string_view number = text.substr(hash + 1, colon - hash - 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), parsed.moment.nth);
  if (error != std::errc() || end != number.data() + number.size() || parsed.moment.nth == 0) {
    return std::nullopt;
  }
  for (const fault::LikelyFault& fault : FaultsAt(parsed.moment.place, true)) {
    if (fault.name != text.substr(colon + 2)) continue;
    parsed.fault = fault;
    return parsed;
  }
  return std::nullopt;
}

}  // namespace

std::vector<fault::LikelyFault> FaultsAt(std::string_view place, bool has_peers) {
  place = WithoutHost(place);
  std::vector<fault::LikelyFault> faults = fault::LikelyFaultsAt(place);
  if (!has_peers) return faults;
  for (fault::LikelyFault& fault : fault::PeerFaultsAt(place)) faults.push_back(std::move(fault));
  return faults;
}

std::string SweepCase::Id() const {
  std::string id;
  for (const SweepFaultAt& each : faults) {
    if (!id.empty()) id += kAnd;
    id += each.ToString();
  }
  return id;
}

bool SweepCase::EndsProgram() const {
  return std::ranges::any_of(
      faults, [](const SweepFaultAt& each) { return each.fault.keys.starts_with("end_program"); });
}

std::string SweepCase::Rules() const {
  std::string rules;
  for (size_t i = 0; i < faults.size(); i++) {
    const SweepFaultAt& each = faults[i];
    std::string keys = each.fault.keys;
    // One key on each line.
    for (size_t at = 0; (at = keys.find(", ", at)) != keys.npos;) keys.replace(at, 2, "\n");
    rules += "[[fault]]\nname = \"" + std::string(kCaseRule) + "." + std::to_string(i + 1) +
             "\"\nat = \"" + std::string(WithoutHost(each.moment.place)) +
             "\"\nnth = " + std::to_string(each.moment.nth) + "\n" + keys + "\n";
    if (const std::string_view host = HostOfPlace(each.moment.place); !host.empty()) {
      rules += "host = \"" + std::string(host) + "\"\n";
    }
  }
  return rules;
}

std::optional<SweepCase> ParseCase(std::string_view id) {
  SweepCase parsed;
  while (true) {
    const size_t end = id.find(kAnd);
    const auto fault = ParseFaultAt(id.substr(0, end));
    if (!fault) return std::nullopt;
    parsed.faults.push_back(*fault);
    if (end == id.npos) return parsed;
    id.remove_prefix(end + kAnd.size());
  }
}

bool IsSelected(const PlanOptions& options, std::string_view place,
                const fault::LikelyFault& fault) {
  const bool is_at =
      MatchesAny(options.points, place) || MatchesAny(options.points, WithoutHost(place));
  return is_at && MatchesAny(options.faults, fault.name) &&
         !(options.is_on_system && WhyFaultNotOnSystem(place, fault));
}

std::optional<std::string> WhyFaultNotOnSystem(std::string_view place,
                                               const fault::LikelyFault& fault) {
  const std::string keys = "at = \"" + std::string(place) + "\", " + fault.keys;
  const auto rule = fault::ParseRule(keys, 1, FaultVocabulary());
  return rule ? WhyNotOnSystem(*rule) : rule.error();
}

std::string OmittedOnSystem(const std::vector<Site>& sites, const PlanOptions& options) {
  if (!options.is_on_system) return {};
  PlanOptions of_emulator = options;
  of_emulator.is_on_system = false;
  size_t count = 0;
  std::set<std::string> names;
  for (const SweepCase& one : MakePlan(sites, of_emulator)) {
    const SweepFaultAt& only = one.faults.front();
    if (!WhyFaultNotOnSystem(only.moment.place, only.fault)) continue;
    count++;
    names.insert(only.fault.name);
  }
  std::string line;
  if (count > 0) {
    line = std::to_string(count) + " cases need the emulator (";
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    line += list + ")";
  }
  const auto may_be_unseen = [](std::string_view pattern) {
    return pattern.starts_with("cm") || pattern.starts_with("packet") || pattern.starts_with("*");
  };
  if (options.points.empty() || std::ranges::any_of(options.points, may_be_unseen)) {
    line += std::string(line.empty() ? "" : "; ") +
            "CM messages and packets get no faults, because --backend system does not see them";
  }
  return line;
}

std::vector<SweepCase> MakePlan(const std::vector<Site>& sites, const PlanOptions& options) {
  struct Ranked {
    int rank;
    SweepCase one;
  };
  std::vector<Ranked> ranked;
  for (const Site& site : sites) {
    for (const uint64_t nth : ChosenMoments(site.moments, options.per_site)) {
      const int rank = nth == site.moments.front() ? 0 : nth == site.moments.back() ? 1 : 2;
      for (const fault::LikelyFault& fault : FaultsAt(site.place, options.has_peers)) {
        if (!IsSelected(options, site.place, fault)) continue;
        ranked.push_back({rank, {{{{site.place, nth}, fault}}}});
      }
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::rank);
  std::vector<SweepCase> plan;
  for (size_t i = options.shard; i < ranked.size(); i += options.shards) {
    plan.push_back(std::move(ranked[i].one));
  }
  return plan;
}

}  // namespace rdmaemu::cli
