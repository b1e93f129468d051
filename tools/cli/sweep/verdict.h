// Judges a run of a test with faults, by comparison with a run without faults.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/sweep/test_run.h"

namespace rdmaemu::cli {

enum class Verdict {
  kSurvived,    // as without the fault
  kFailed,      // a status that says so, and nothing left behind
  kNotReached,  // the fault did not happen
  kNotRun,      // `run` could not run the test
  // The findings.
  kCrashed,
  kHung,
  kSanitizer,
  kWrongResult,  // the test says success although it did less than without the fault
  kMisused,      // a usage check found a mistake other than a leak
  kLeaked,       // objects or events were left at exit
};
inline constexpr Verdict kFirstFinding = Verdict::kCrashed;
inline constexpr Verdict kLastVerdict = Verdict::kLeaked;

constexpr bool IsFinding(Verdict verdict) { return verdict >= kFirstFinding; }
// "survived", "failed", ..., as in the results.
const char* VerdictName(Verdict verdict);
std::optional<Verdict> VerdictOf(std::string_view name);

// Returns the first line that a sanitizer or valgrind has written. Empty: none.
std::string SanitizerLine(const std::string& output);

struct Judged {
  Verdict verdict = Verdict::kNotRun;
  std::string reason;  // one line
};

// The result of the run without faults.
struct DryRun {
  RunResult result;
  bool counts_repeat = false;  // a second run had the same moments
  // Texts for the frames of the result's stacks (DescribeFrames).
  FrameTexts frames = {};

  // Returns the frames of a stack as texts, innermost first.
  std::vector<std::string> Described(const ProgramStack& stack) const;
  // Returns where in the program a moment is: its innermost frame. Empty: unknown.
  std::string CodeOf(const Moment& moment) const;
};

struct JudgeOptions {
  std::vector<int> expected = {};  // statuses that count as success; the dry run's always does
  std::vector<Verdict> accepted =
      {};  // verdicts that are no finding; the next one that fits counts
};
Judged Judge(const SweepCase& one, const RunResult& run, const DryRun& dry,
             const JudgeOptions& options);

}  // namespace rdmaemu::cli
