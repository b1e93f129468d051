#include "tools/cli/sweep/verdict.h"

#include <signal.h>

#include <algorithm>
#include <array>

namespace rdmaemu::cli {
namespace {

constexpr std::array<const char*, 10> kNames = {"survived", "failed", "not-reached", "not-run",
                                                "crashed",  "hung",   "sanitizer",   "wrong-result",
                                                "misused",  "leaked"};
static_assert(kNames.size() == static_cast<size_t>(kLastVerdict) + 1);

bool IsCrash(int number) {
  constexpr int kCrashes[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  return std::ranges::find(kCrashes, number) != std::end(kCrashes);
}

bool IsLeak(const CheckFinding& finding) {
  return finding.rule.starts_with("RDMAEMU-EXIT-") || finding.rule == "RDMAEMU-CM-009";
}

// Returns true for the finding that a completion fails by its rkey, if a rule made it fail.
bool IsOfRule(const CheckFinding& finding, const SweepCase& one) {
  return finding.rule == "RDMAEMU-MR-009" &&
         std::ranges::any_of(one.faults, [](const SweepFaultAt& each) {
           return each.fault.name == "status=REM_ACCESS_ERR";
         });
}

// The first finding that the dry run has not.
const CheckFinding* NewFinding(const SweepCase& one, const RunResult& run, const DryRun& dry,
                               bool leaks) {
  for (const CheckFinding& finding : run.findings) {
    if (IsLeak(finding) != leaks || IsOfRule(finding, one)) continue;
    if (std::ranges::find(dry.result.findings, finding) == dry.result.findings.end()) {
      return &finding;
    }
  }
  return nullptr;
}

struct Done {
  uint64_t completions = 0, connections = 0;
};

Done DoneIn(const HostRecords& host, const SweepCase& one) {
  Done done;
  for (const auto& [key, count] : host.count) {
    const std::string_view place = WithoutHost(key);
    if (place.starts_with("wc.") && place != "wc.flushed") done.completions += count;
    if (place == "event.established" || place == "event.connect_response") {
      done.connections += count;
    }
  }
  done.completions -= std::min(done.completions, host.failed_completions);
  if (host.fired.empty()) return done;
  for (const SweepFaultAt& each : one.faults) {
    const std::string_view place = WithoutHost(each.moment.place);
    if (place.starts_with("wc.") && each.fault.name.starts_with("status=")) {
      done.completions -= std::min<uint64_t>(done.completions, 1);
    }
    const bool is_event = place == "event.established" || place == "event.connect_response";
    if (is_event && each.fault.name.starts_with("event=")) {
      done.connections -= std::min<uint64_t>(done.connections, 1);
    }
  }
  return done;
}

// The protocols repair a loss, a delay or a repetition. A test may then succeed without a
// completion that it does not need: that of a send whose answer has arrived.
bool IsRepaired(const SweepFaultAt& each) {
  const std::string& name = each.fault.name;
  return name == "drop" || name == "delay" || name == "duplicate";
}

std::string WhyWrong(const SweepCase& one, const RunResult& run, const DryRun& dry) {
  if (!dry.counts_repeat || std::ranges::all_of(one.faults, IsRepaired)) return {};
  // The program that a rule ended reports nothing, and completes nothing more.
  if (one.EndsProgram()) return {};
  const Done now = DoneIn(run.host, one), before = DoneIn(dry.result.host, {});
  const auto less = [&](const char* what, uint64_t a, uint64_t b) {
    return run.why + ", but " + std::to_string(a) + " of " + std::to_string(b) + " " + what +
           " succeeded";
  };
  if (now.completions < before.completions) {
    return less("completions", now.completions, before.completions);
  }
  // A test that moves data shows by its data whether it was connected. A connection may be
  // established without its event, by the first message.
  if (before.completions == 0 && now.connections < before.connections) {
    return less("connection events", now.connections, before.connections);
  }
  return {};
}

}  // namespace

std::string SanitizerLine(const std::string& output) {
  constexpr std::string_view kMarks[] = {
      "ERROR: AddressSanitizer",       "ERROR: LeakSanitizer",     "WARNING: ThreadSanitizer",
      "WARNING: MemorySanitizer",      ": runtime error: ",        "== Invalid read of size",
      "== Invalid write of size",      "== Invalid free()",        "== Conditional jump or move",
      "== Use of uninitialised value", "ERROR: HWAddressSanitizer"};
  for (const std::string_view mark : kMarks) {
    const size_t at = output.find(mark);
    if (at == output.npos) continue;
    const size_t newline = output.rfind('\n', at);
    const size_t begin = newline == output.npos ? 0 : newline + 1;
    return output.substr(begin, output.find('\n', at) - begin);
  }
  return {};
}

const char* VerdictName(Verdict verdict) { return kNames.at(static_cast<size_t>(verdict)); }

std::optional<Verdict> VerdictOf(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Verdict>(found - kNames.begin());
}

std::vector<std::string> DryRun::Described(const ProgramStack& stack) const {
  std::vector<std::string> texts;
  for (const std::string& frame : stack) {
    const auto text = frames.find(frame);
    if (text == frames.end()) {
      texts.push_back(frame);
    } else {
      texts.insert(texts.end(), text->second.begin(), text->second.end());
    }
  }
  // The C library's start code says nothing about the program.
  while (texts.size() > 1 && texts.back().starts_with("_start (")) texts.pop_back();
  return texts;
}

std::string DryRun::CodeOf(const Moment& moment) const {
  const auto stack = result.host.stacks.find(moment);
  return stack == result.host.stacks.end() ? "" : Described({stack->second.front()}).front();
}

Judged Judge(const SweepCase& one, const RunResult& run, const DryRun& dry,
             const JudgeOptions& options) {
  using End = RunResult::End;
  const auto is_accepted = [&](Verdict verdict) {
    return std::ranges::find(options.accepted, verdict) != options.accepted.end();
  };
  if (run.end == End::kNotRun) return {Verdict::kNotRun, run.why};
  if (run.end == End::kTimeLimit && !is_accepted(Verdict::kHung)) return {Verdict::kHung, run.why};
  if (run.server_was_stopped && !dry.result.server_was_stopped && !is_accepted(Verdict::kHung)) {
    return {Verdict::kHung, "the server did not end after the client"};
  }
  if (const std::string line = SanitizerLine(run.output);
      !line.empty() && !is_accepted(Verdict::kSanitizer)) {
    return {Verdict::kSanitizer, line};
  }
  if (run.end == End::kSignal && IsCrash(run.status) && !is_accepted(Verdict::kCrashed)) {
    return {Verdict::kCrashed, run.why};
  }
  if (const CheckFinding* const misuse = NewFinding(one, run, dry, false);
      misuse != nullptr && !is_accepted(Verdict::kMisused)) {
    return {Verdict::kMisused, misuse->text};
  }
  const bool is_success =
      run.end == End::kStatus &&
      (run.status == dry.result.status ||
       std::ranges::find(options.expected, run.status) != options.expected.end());
  // An expected status may be the one by which the test reports the fault.
  const bool is_as_before = run.end == End::kStatus && run.status == dry.result.status;
  if (is_as_before && !is_accepted(Verdict::kWrongResult)) {
    if (const std::string why = WhyWrong(one, run, dry); !why.empty()) {
      return {Verdict::kWrongResult, why};
    }
  }
  if (const CheckFinding* const leak = NewFinding(one, run, dry, true);
      leak != nullptr && !is_accepted(Verdict::kLeaked)) {
    return {Verdict::kLeaked, leak->text};
  }
  // A program that a rule ended leaves the processes that it started.
  const size_t left_before = one.EndsProgram() ? SIZE_MAX : dry.result.processes_left;
  if (run.processes_left > left_before && !is_accepted(Verdict::kLeaked)) {
    return {Verdict::kLeaked,
            run.why + ", and it left " + std::to_string(run.processes_left) + " processes running"};
  }
  if (run.host.fired.size() < one.faults.size()) {
    return {Verdict::kNotReached, "the fault did not happen"};
  }
  return {is_success ? Verdict::kSurvived : Verdict::kFailed, run.why};
}

}  // namespace rdmaemu::cli
