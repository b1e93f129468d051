// The cases of a sweep: which fault happens at which moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/fault/likely_faults.h"
#include "tools/cli/sweep/sites.h"

namespace rdmaemu::cli {

// The names of a case's rules begin with this word.
inline constexpr std::string_view kCaseRule = "sweep.case";

struct SweepFaultAt {
  Moment moment;
  fault::LikelyFault fault;

  // "call.reg_mr#1: errno=ENOMEM"
  std::string ToString() const { return moment.ToString() + ": " + fault.name; }
};

// One run of the test, with one fault or several.
struct SweepCase {
  std::vector<SweepFaultAt> faults;

  // The id of the case, by which --case selects it: "call.reg_mr#1: errno=ENOMEM". The ids of
  // several faults are joined by " + ".
  std::string Id() const;
  // Returns true if a rule of the case ends a program by SIGKILL.
  bool EndsProgram() const;
  // The case as a scenario (TOML), without the witnesses.
  std::string Rules() const;
};
// Parses an id. Returns nothing if the text is no id of the fault table.
std::optional<SweepCase> ParseCase(std::string_view id);

struct PlanOptions {
  std::vector<std::string> points = {};  // patterns of places, with or without host; empty: all
  std::vector<std::string> faults = {};  // patterns of names of faults; empty: all
  uint64_t per_site = 3;                 // moments of each site; 0: all
  bool has_peers = false;                // the test has several programs, one of which may crash
  uint64_t shard = 0, shards = 1;        // the cases shard, shard + shards, ...
  bool is_on_system = false;             // only faults that --backend system has
};
// Returns the faults at a place, which may begin with a host. With `has_peers`, the crash of a peer
// is among them.
std::vector<fault::LikelyFault> FaultsAt(std::string_view place, bool has_peers);
// Returns why --backend system does not have a fault, and what to use instead. Returns nothing if
// the backend has the fault.
std::optional<std::string> WhyFaultNotOnSystem(std::string_view place,
                                               const fault::LikelyFault& fault);
// Returns true if the options select this fault at this place.
bool IsSelected(const PlanOptions& options, std::string_view place,
                const fault::LikelyFault& fault);
// Returns the cases in the order in which a sweep runs them: first the first moment of each site,
// then the last ones, then those between. The same sites give the same plan.
std::vector<SweepCase> MakePlan(const std::vector<Site>& sites, const PlanOptions& options);
// Returns a line about the cases that the plan omits because --backend system does not have them.
// Empty: the plan omits none.
std::string OmittedOnSystem(const std::vector<Site>& sites, const PlanOptions& options);

}  // namespace rdmaemu::cli
