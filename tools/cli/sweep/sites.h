// The places of a test at which faults are possible, as a run without faults shows them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/cli/sweep/call_sites.h"

namespace rdmaemu::cli {

// The place without the host: "call.reg_mr" of "client/call.reg_mr".
std::string_view WithoutHost(std::string_view place);
// The host of "client/call.reg_mr". Empty: the test has one host.
std::string_view HostOfPlace(std::string_view place);

// A moment of a run: the nth one at a place of docs/faults.md, such as the third "call.reg_mr". In
// a test of two hosts, the place begins with the host, and the host's moments are counted.
struct Moment {
  std::string place;
  uint64_t nth = 1;

  auto operator<=>(const Moment&) const = default;
  std::string ToString() const { return place + "#" + std::to_string(nth); }
};

// The records of one run's host.
struct HostRecords {
  std::vector<Moment> moments;                  // in the order in which they happened
  std::vector<double> times;                    // of the moments: seconds of the host's clock
  std::map<std::string, uint64_t> count;        // moments by place
  std::map<std::string, std::string> counting;  // the rule whose firings are counted, by place
  std::set<std::string> fired;                  // rules of the sweep's cases that had an effect
  std::set<int> with_qps;                       // processes that created a queue pair
  size_t moments_before_fault = 0;              // before the first of these rules fired
  std::map<Moment, ProgramStack> stacks;        // of the calls whose sites were recorded
  bool stacks_are_cut = false;                  // the program made too many calls
  // Without those that were flushed, which have a place of their own, and those of rules.
  uint64_t failed_completions = 0;
};

// Returns the rules that make a host record every moment. They change nothing. They must be before
// all other rules of the scenario. Polls and arming are left out, because a program may make
// millions of these calls. `is_on_system`: for the doors of a host on the system backend.
std::string WitnessRules(bool is_on_system = false);

// Merges the records of two hosts that share one time. Each place then begins with its host.
HostRecords Merge(std::vector<std::pair<std::string, HostRecords>> hosts);

// Reads a trace of `run --trace`. Returns a message for the user if the file is not such a trace.
tl::expected<HostRecords, std::string> ReadHostRecords(const std::string& path,
                                                       const CallSites& call_sites);

// Leaves out the stacks that `earlier`, a run of the same test, does not have at the same moments.
// Threads and processes that race make their calls in another order in each run, so a fault at a
// numbered moment may be at another line of the program.
void LeaveRepeatedStacks(const HostRecords& earlier, HostRecords& records);

// All moments at one place of the host and one call stack of the program. The stack of events,
// messages, packets and completions is unknown.
struct Site {
  std::string place;
  ProgramStack stack = {};
  std::vector<uint64_t> moments = {};  // Moment::nth, ascending
};
// Returns the sites in the order of their first moments.
std::vector<Site> SitesOf(const HostRecords& records);

// Returns at most `most` of a site's moments: the first, the last, and others at equal distances.
// 0: all.
std::vector<uint64_t> ChosenMoments(const std::vector<uint64_t>& moments, uint64_t most);

}  // namespace rdmaemu::cli
