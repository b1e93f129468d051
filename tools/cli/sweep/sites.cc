#include "tools/cli/sweep/sites.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "emulator/fault/rule.h"
#include "shim/layer/faults/protocol.h"
#include "tools/cli/running_host.h"
#include "tools/cli/sweep/cases.h"

namespace rdmaemu::cli {
namespace {

// Each is a rule of its own. A program asks its host before a post only if a rule names the post.
// The rule at "call" then fires, too, so two rules count the same moments.
constexpr std::array<std::string_view, 8> kWitnessed = {
    R"("call")",   R"(["call.post_send", "call.post_recv", "call.post_srq_recv"])",
    R"("cm")",     R"("event")",
    R"("wc")",     R"("async")",
    R"("packet")", R"("memory")"};

// Calls that programs do not make by themselves: the libraries' own, and those of tools.
constexpr std::array<std::string_view, 12> kOwnCalls = {
    "call.hello",     "call.read_file", "call.map_segment", "call.host_status",
    "call.host_stop", "call.clock",     "call.fault_list",  "call.fault_wait",
    "call.fault_add", "call.query",     "call.poll_cq",     "call.req_notify_cq"};

bool IsOwnCall(std::string_view place) {
  return std::ranges::find(kOwnCalls, place) != kOwnCalls.end();
}

// The places of the rules on the system backend. A watched call costs a question to the host, so
// these rules name the calls.
std::vector<std::string> WitnessedOnSystem() {
  std::set<std::string> calls;
  for (const char* const subject : layer::faults::kCallSubjects) {
    const std::string place = std::string("call.") + subject;
    if (!IsOwnCall(place)) calls.insert("\"" + place + "\"");
  }
  std::vector<std::string> places = {R"("event")", R"("wc")", R"("async")", R"("memory")"};
  size_t count = 0;
  std::string list;
  for (const std::string& call : calls) {
    list += (list.empty() ? "" : ", ") + call;
    if (++count % fault::Match::kMaxSubjects != 0 && count != calls.size()) continue;
    places.push_back("[" + std::exchange(list, {}) + "]");
  }
  return places;
}

// The moments of each process at each place.
using CountOfProcess = std::map<std::pair<uint64_t, std::string>, uint64_t>;

void Add(const nlohmann::json& record, const CallSites& call_sites, CountOfProcess& counts,
         HostRecords& records) {
  const std::string kind = record.value("kind", std::string());
  const bool is_flushed = record.value("status", 0) == IBV_WC_WR_FLUSH_ERR;
  if (kind == "wc.error" && !is_flushed) records.failed_completions++;
  const std::string rule = record.value("object", std::string());
  if (kind == "fault.failed") records.fired.erase(rule);
  if (kind != "fault") return;
  if (rule.starts_with(kCaseRule)) {
    if (records.fired.empty()) records.moments_before_fault = records.moments.size();
    records.fired.insert(rule);
    return;
  }
  if (!rule.starts_with(kSweepWitness)) return;
  const std::string place = record.value("at", std::string());
  if (IsOwnCall(place)) return;
  const std::string& counting = records.counting.try_emplace(place, rule).first->second;
  if (rule != counting) return;
  if (place == "call.create_qp") records.with_qps.insert(record.value("process", 0));
  const Moment& moment = records.moments.emplace_back(Moment{place, ++records.count[place]});
  const auto process = record.value("process", uint64_t{0});
  const ProgramStack& stack = call_sites.StackOf(process, place, ++counts[{process, place}]);
  if (!stack.empty()) records.stacks[moment] = stack;
  records.times.push_back(record.value("time", 0.0));
}

}  // namespace

std::string_view WithoutHost(std::string_view place) {
  return place.substr(place.find('/') + 1);  // find returns npos, which is -1, without a host
}

std::string_view HostOfPlace(std::string_view place) {
  const size_t slash = place.find('/');
  return place.substr(0, slash == place.npos ? 0 : slash);
}

std::string WitnessRules(bool is_on_system) {
  const std::vector<std::string> places =
      is_on_system ? WitnessedOnSystem()
                   : std::vector<std::string>(kWitnessed.begin(), kWitnessed.end());
  std::string rules;
  for (size_t i = 0; i < places.size(); i++) {
    rules += "[[fault]]\nname = \"" + std::string(kSweepWitness) + std::to_string(i) +
             "\"\nat = " + places[i] + "\n";
  }
  return rules;
}

tl::expected<HostRecords, std::string> ReadHostRecords(const std::string& path,
                                                       const CallSites& call_sites) {
  std::ifstream file(path);
  if (!file) return tl::unexpected("cannot read the host's trace " + path);
  HostRecords records;
  records.stacks_are_cut = call_sites.is_cut();
  CountOfProcess counts;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A host that was killed may leave a part of a line.
    if (record.is_object()) Add(record, call_sites, counts, records);
  }
  return records;
}

void LeaveRepeatedStacks(const HostRecords& earlier, HostRecords& records) {
  std::erase_if(records.stacks, [&](const auto& entry) {
    const auto before = earlier.stacks.find(entry.first);
    return before == earlier.stacks.end() || before->second != entry.second;
  });
}

HostRecords Merge(std::vector<std::pair<std::string, HostRecords>> hosts) {
  HostRecords merged;
  const auto place_of = [](const std::string& host, const std::string& place) {
    return host + "/" + place;
  };
  std::vector<size_t> next(hosts.size(), 0);
  std::optional<size_t> before_fault;
  while (true) {
    std::optional<size_t> first;
    for (size_t i = 0; i < hosts.size(); i++) {
      const HostRecords& records = hosts[i].second;
      if (!records.fired.empty() && next[i] == records.moments_before_fault && !before_fault) {
        before_fault = merged.moments.size();
      }
      if (next[i] == records.moments.size()) continue;
      if (!first || records.times[next[i]] < hosts[*first].second.times[next[*first]]) first = i;
    }
    if (!first) break;
    const auto& [host, records] = hosts[*first];
    const Moment& moment = records.moments[next[*first]];
    merged.moments.push_back({place_of(host, moment.place), moment.nth});
    merged.times.push_back(records.times[next[*first]++]);
  }
  merged.moments_before_fault = before_fault.value_or(0);
  for (const auto& [host, records] : hosts) {
    for (const auto& [place, count] : records.count) merged.count[place_of(host, place)] = count;
    merged.fired.insert(records.fired.begin(), records.fired.end());
    merged.failed_completions += records.failed_completions;
    merged.stacks_are_cut |= records.stacks_are_cut;
    for (const auto& [moment, stack] : records.stacks) {
      merged.stacks[{place_of(host, moment.place), moment.nth}] = stack;
    }
  }
  return merged;
}

std::vector<Site> SitesOf(const HostRecords& records) {
  std::vector<Site> sites;
  std::map<std::pair<std::string, ProgramStack>, size_t> known;
  for (const Moment& moment : records.moments) {
    const auto stack = records.stacks.find(moment);
    const ProgramStack frames = stack == records.stacks.end() ? ProgramStack() : stack->second;
    const auto [site, is_new] = known.try_emplace({moment.place, frames}, sites.size());
    if (is_new) sites.push_back({moment.place, frames});
    sites[site->second].moments.push_back(moment.nth);
  }
  return sites;
}

std::vector<uint64_t> ChosenMoments(const std::vector<uint64_t>& moments, uint64_t most) {
  if (most == 0 || moments.size() <= most) return moments;
  std::vector<uint64_t> chosen;
  for (uint64_t i = 0; i < most; i++) {
    chosen.push_back(moments[most == 1 ? 0 : i * (moments.size() - 1) / (most - 1)]);
  }
  return chosen;
}

}  // namespace rdmaemu::cli
