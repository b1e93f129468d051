#include "tools/cli/sweep/outcome.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "emulator/base/toml.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json JsonOf(const Outcome& outcome) {
  Json json = {{"case", outcome.id},
               {"verdict", VerdictName(outcome.verdict)},
               {"reason", outcome.reason},
               {"took_ms", outcome.took.count() / 1'000'000}};
  if (!outcome.code.empty()) json["code"] = outcome.code;
  if (!IsFinding(outcome.verdict)) return json;
  json["command"] = outcome.command;
  json["report"] = outcome.report;
  json["rules"] = outcome.rules;
  json["details"] = outcome.details;
  if (!outcome.known.empty()) json["known"] = outcome.known;
  return json;
}

void PrintCutNote(const SweepResults& results, std::ostream& out) {
  if (!results.stacks_are_cut) return;
  out << "note: a process made more calls, or calls with more different stacks, than are recorded. "
         "Its later calls count as one site for each place\n";
}

}  // namespace

uint64_t SweepResults::Count(Verdict verdict) const {
  return static_cast<uint64_t>(std::ranges::count(outcomes, verdict, &Outcome::verdict));
}

uint64_t SweepResults::NewFindings() const {
  return static_cast<uint64_t>(
      std::ranges::count_if(outcomes, [](const Outcome& each) { return each.is_new_finding(); }));
}

std::string OutcomeLine(const Outcome& outcome) { return Dump(JsonOf(outcome), -1) + "\n"; }

std::string HeadLine(const std::vector<std::string>& test, const std::string& seed,
                     const std::vector<std::string>& host_options) {
  return Dump({{"test", test}, {"seed", seed}, {"host_options", host_options}}, -1) + "\n";
}

std::vector<Outcome> ReadOutcomes(const std::string& path, std::string& head) {
  std::vector<Outcome> outcomes;
  std::ifstream file(path);
  std::getline(file, head);
  head += "\n";
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("case") || !json.contains("verdict")) continue;
    try {
      Outcome outcome;
      outcome.id = json.at("case").get<std::string>();
      const auto verdict = VerdictOf(json.at("verdict").get<std::string>());
      if (!verdict || *verdict == Verdict::kNotRun) continue;
      outcome.verdict = *verdict;
      outcome.reason = json.value("reason", "");
      outcome.took = Duration(json.value("took_ms", int64_t{0}) * 1'000'000);
      outcome.code = json.value("code", std::vector<std::string>());
      outcome.command = json.value("command", "");
      outcome.report = json.value("report", "");
      outcome.rules = json.value("rules", "");
      outcome.details = json.value("details", std::vector<std::string>());
      outcomes.push_back(std::move(outcome));
    } catch (const Json::exception&) {
      continue;  // another program's line
    }
  }
  return outcomes;
}

void PrintSites(const SweepResults& results, std::ostream& out) {
  for (const SiteRow& site : results.sites) {
    out << site.place << ": " << site.moments << (site.moments == 1 ? " moment" : " moments");
    for (size_t i = 0; i < site.chosen.size(); i++) {
      out << (i == 0 ? ", faults at #" : " #") << site.chosen[i];
    }
    for (size_t i = 0; i < site.stack.size(); i++) {
      out << (i == 0 ? "\n  " : " < ") << site.stack[i];
    }
    out << "\n";
  }
  PrintCutNote(results, out);
}

void PrintText(const SweepResults& results, const std::string& directory, std::ostream& out) {
  for (const Outcome& each : results.outcomes) {
    if (!IsFinding(each.verdict)) continue;
    out << VerdictName(each.verdict) << ": " << each.id
        << (each.known.empty() ? "" : " (known: " + each.known + ")") << "\n";
    if (!each.known.empty()) continue;
    out << "  " << each.reason << "\n";
    for (const std::string& code : each.code) out << "  at " << code << "\n";
    for (const std::string& line : each.details) out << "  " << line << "\n";
    out << "  again:  " << each.command << "\n";
    if (!each.report.empty()) out << "  report: " << directory << "/" << each.report << "\n";
  }
  for (const std::string& id : results.stale) {
    out << "note: the baseline's \"" << id << "\" is no finding any more; remove it\n";
  }
  if (!results.omitted.empty()) out << "note: " << results.omitted << "\n";
  const auto count = [&](Verdict verdict) { return results.Count(verdict); };
  out << results.outcomes.size() << " runs at " << results.sites.size()
      << " sites: " << count(Verdict::kSurvived) << " survived, " << count(Verdict::kFailed)
      << " failed cleanly, " << count(Verdict::kNotReached) << " not reached";
  for (int i = static_cast<int>(kFirstFinding); i <= static_cast<int>(kLastVerdict); i++) {
    const auto verdict = static_cast<Verdict>(i);
    if (count(verdict) > 0) out << ", " << count(verdict) << " " << VerdictName(verdict);
  }
  if (count(Verdict::kNotRun) > 0) out << ", " << count(Verdict::kNotRun) << " could not be run";
  out << "\n";
  PrintCutNote(results, out);
  if (results.outcomes.size() < results.planned) {
    out << "note: " << results.planned - results.outcomes.size() << " of " << results.planned
        << " cases were not run; --time-budget and --max-runs allow more, --resume continues\n";
  }
}

std::string ToJson(const SweepResults& results) {
  Json counts = Json::object();
  for (int i = 0; i <= static_cast<int>(kLastVerdict); i++) {
    counts[VerdictName(static_cast<Verdict>(i))] = results.Count(static_cast<Verdict>(i));
  }
  Json sites = Json::array();
  for (const SiteRow& site : results.sites) {
    sites.push_back({{"place", site.place},
                     {"stack", site.stack},
                     {"moments", site.moments},
                     {"chosen", site.chosen}});
  }
  Json outcomes = Json::array();
  for (const Outcome& each : results.outcomes) outcomes.push_back(JsonOf(each));
  const Json json = {{"version", 1},
                     {"test", results.test},
                     {"seed", results.seed},
                     {"sites", results.sites.size()},
                     {"site_list", sites},
                     {"planned", results.planned},
                     {"omitted", results.omitted},
                     {"took_s", results.took_s},
                     {"new_findings", results.NewFindings()},
                     {"counts", counts},
                     {"stale", results.stale},
                     {"cases", outcomes}};
  return Dump(json, 1) + "\n";
}

tl::expected<std::vector<KnownFinding>, std::string> ReadBaseline(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return tl::unexpected("cannot read the baseline " + path +
                          "; give --baseline a file with [[known]] tables (docs/sweep.md)");
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return tl::unexpected("the baseline " + path + " is a directory; give --baseline a file");
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto parsed = ParseToml(text, path);
  if (!parsed) return tl::unexpected(parsed.error());
  std::vector<KnownFinding> known;
  for (const auto& [key, value] : *parsed) {
    if (key == "known" && value.is_array()) continue;
    return tl::unexpected(path + ": a baseline has [[known]] tables, not " +
                          std::string(key.str()));
  }
  const toml::array* const tables = (*parsed)["known"].as_array();
  if (tables == nullptr) return known;
  for (const toml::node& node : *tables) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) return tl::unexpected(path + ": known must be [[known]] tables");
    KnownFinding entry;
    for (const auto& [key, value] : *table) {
      std::string* const into = key == "case"      ? &entry.id
                                : key == "verdict" ? &entry.verdict
                                : key == "reason"  ? &entry.reason
                                                   : nullptr;
      if (into == nullptr || !value.is_string()) {
        return tl::unexpected(path + ": a [[known]] has the texts case, verdict and reason, not " +
                              std::string(key.str()));
      }
      *into = value.as_string()->get();
    }
    if (entry.id.empty() || entry.reason.empty()) {
      return tl::unexpected(path + ": each [[known]] needs a case and the reason why it is known");
    }
    if (!entry.verdict.empty() && !VerdictOf(entry.verdict)) {
      return tl::unexpected(path + ": there is no verdict " + entry.verdict +
                            "; see rdmaemu sweep --help, --accept");
    }
    known.push_back(std::move(entry));
  }
  return known;
}

void Compare(Outcome& outcome, std::vector<KnownFinding>& known) {
  outcome.known.clear();
  if (!IsFinding(outcome.verdict)) return;
  for (KnownFinding& entry : known) {
    if (!fault::MatchesPattern(entry.id, outcome.id)) continue;
    if (!entry.verdict.empty() && entry.verdict != VerdictName(outcome.verdict)) continue;
    entry.is_used = true;
    outcome.known = entry.reason;
    return;
  }
}

}  // namespace rdmaemu::cli
