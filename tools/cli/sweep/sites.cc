#include "tools/cli/sweep/sites.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/cli/sweep/cases.h"

namespace rdmaemu::cli {
namespace {

constexpr std::string_view kWitness = "sweep.witness";

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

void Add(const nlohmann::json& record, HostRecords& records) {
  const std::string kind = record.value("kind", std::string());
  const bool is_flushed = record.value("status", 0) == IBV_WC_WR_FLUSH_ERR;
  if (kind == "wc.error" && !is_flushed) records.failed_completions++;
  if (kind != "fault") return;
  const std::string rule = record.value("object", std::string());
  if (rule.starts_with(kCaseRule)) {
    if (records.fired.empty()) records.moments_before_fault = records.moments.size();
    records.fired.insert(rule);
    return;
  }
  if (!rule.starts_with(kWitness)) return;
  const std::string place = record.value("at", std::string());
  if (std::ranges::find(kOwnCalls, place) != kOwnCalls.end()) return;
  const std::string& counting = records.counting.try_emplace(place, rule).first->second;
  if (rule != counting) return;
  records.moments.push_back({place, ++records.count[place]});
}

}  // namespace

std::string WitnessRules() {
  std::string rules;
  for (size_t i = 0; i < kWitnessed.size(); i++) {
    rules += "[[fault]]\nname = \"" + std::string(kWitness) + "." + std::to_string(i) +
             "\"\nat = " + std::string(kWitnessed[i]) + "\n";
  }
  return rules;
}

tl::expected<HostRecords, std::string> ReadHostRecords(const std::string& path) {
  std::ifstream file(path);
  if (!file) return tl::unexpected("cannot read the host's trace " + path);
  HostRecords records;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A host that was killed may leave a part of a line.
    if (record.is_object()) Add(record, records);
  }
  return records;
}

std::vector<Site> SitesOf(const HostRecords& records) {
  std::vector<Site> sites;
  for (const Moment& moment : records.moments) {
    if (moment.nth == 1) sites.push_back({moment.place, records.count.at(moment.place)});
  }
  return sites;
}

std::vector<uint64_t> ChosenMoments(uint64_t moments, uint64_t most) {
  std::vector<uint64_t> chosen;
  if (most == 0 || moments <= most) {
    for (uint64_t nth = 1; nth <= moments; nth++) chosen.push_back(nth);
    return chosen;
  }
  for (uint64_t i = 0; i < most; i++) {
    chosen.push_back(most == 1 ? 1 : 1 + i * (moments - 1) / (most - 1));
  }
  return chosen;
}

}  // namespace rdmaemu::cli
