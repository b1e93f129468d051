// The outcomes of a sweep, and the files that show them.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/cli/sweep/verdict.h"

namespace rdmaemu::cli {

struct Outcome {
  std::string id;  // SweepCase::Id
  Verdict verdict = Verdict::kNotRun;
  std::string reason;
  Duration took{};
  // Where in the program the moments of the faults are: "call.reg_mr#1: prepare (client.c:12)".
  // Moments without a known stack are left out.
  std::vector<std::string> code = {};
  // Of a finding.
  std::string command;  // shows the case again
  std::string report;   // a directory below the sweep's; empty: none
  std::string rules;    // TOML
  std::vector<std::string> details;
  std::string known;  // the reason of the baseline; empty: a new finding

  bool is_new_finding() const { return IsFinding(verdict) && known.empty(); }
};

// One line of results.jsonl, by which --resume continues.
std::string OutcomeLine(const Outcome& outcome);
// The first line of results.jsonl, which says what was swept.
std::string HeadLine(const std::vector<std::string>& test, const std::string& seed,
                     const std::vector<std::string>& host_options);
// Reads results.jsonl. A cut last line is left out, and so are cases that could not be run. Sets
// `head` to the first line.
std::vector<Outcome> ReadOutcomes(const std::string& path, std::string& head);

// A site of the run without faults, for people.
struct SiteRow {
  std::string place;
  std::vector<std::string> stack = {};  // innermost frame first; empty: unknown
  uint64_t moments = 0;
  std::vector<uint64_t> chosen = {};  // the moments that get faults
};

// The results of a whole sweep.
struct SweepResults {
  std::vector<std::string> test;  // the words of the test, or its two lines
  std::string seed;
  std::vector<SiteRow> sites;
  // The program made more calls than are recorded with their stacks.
  bool stacks_are_cut = false;
  uint64_t planned = 0;
  double took_s = 0;
  std::vector<Outcome> outcomes;
  std::string omitted;             // which cases the backend does not have; empty: it has all
  std::vector<std::string> stale;  // ids of the baseline that are no findings any more

  uint64_t Count(Verdict verdict) const;
  uint64_t NewFindings() const;
};
// Prints the sites as lines: the place, the moments, and where in the program the calls are.
void PrintSites(const SweepResults& results, std::ostream& out);
void PrintText(const SweepResults& results, const std::string& directory, std::ostream& out);
std::string ToJson(const SweepResults& results);
std::string ToJunit(const SweepResults& results);
// A page without references to other files than the reports: a table of sites by faults.
std::string ToHtml(const SweepResults& results);

// Known findings: a TOML file with [[known]] tables, each with the keys case (an id, which may have
// '*'), verdict (may be absent: any) and reason.
struct KnownFinding {
  std::string id, verdict, reason;
  bool is_used = false;
};
tl::expected<std::vector<KnownFinding>, std::string> ReadBaseline(const std::string& path);
// Sets Outcome::known, and marks the entry as used.
void Compare(Outcome& outcome, std::vector<KnownFinding>& known);

}  // namespace rdmaemu::cli
