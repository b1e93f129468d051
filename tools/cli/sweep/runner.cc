#include "tools/cli/sweep/runner.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "emulator/runtime/clock.h"
#include "tools/cli/duration.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOutputLines = 12;  // of a finding
constexpr const char* kWitnessComment =
    "# Rules without an effect, as in each run of a sweep. They make the program ask its host\n"
    "# before each post. Without them, the order and the times of events may differ.\n";
constexpr Duration kLongestPoll = std::chrono::seconds(1);

volatile sig_atomic_t interrupted = 0;
void Interrupt(int) { interrupted = 1; }

int ToPollTimeout(Duration duration) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

// Lines of `run` that say nothing about the test.
bool IsOfRun(std::string_view line) {
  constexpr std::string_view kBegins[] = {"warning: rule \"sweep.", "note: the seed of host ",
                                          "note: host sweep ",      "note: host server ",
                                          "note: host client ",     "note: the usage checks found"};
  return std::ranges::any_of(kBegins,
                             [&](std::string_view each) { return line.starts_with(each); });
}

// The last lines of a text.
std::vector<std::string> LastLines(const std::string& text, size_t most) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (std::string line = text.substr(begin, end - begin); !IsOfRun(line)) {
      lines.push_back(std::move(line));
    }
    begin = end + 1;
  }
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most));
  return lines;
}

// The calls of the program traces below a directory that never returned.
std::vector<std::string> UnfinishedCalls(const std::string& directory) {
  std::vector<std::string> calls;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error)) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.find("\"unfinished\":true") == line.npos) continue;
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object()) continue;
      calls.push_back("thread " + std::to_string(json.value("thread", 0)) + " of process " +
                      std::to_string(json.value("process", 0)) + " is in " +
                      json.value("what", "") + "(" + json.value("object", "") + ")");
    }
  }
  return calls;
}

}  // namespace

struct SweepRunner::Slot {
  Job job;
  TestRun run;
};

SweepRunner::SweepRunner(const SweepRequest& request, std::string directory)
    : request_(request),
      test_(request.test),
      directory_(std::move(directory)),
      has_terminal_(isatty(2) == 1) {
  struct sigaction action {};
  action.sa_handler = Interrupt;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

tl::expected<void, std::string> SweepRunner::RunWithoutFaults() {
  if (const auto given = ParseDuration(request_.limit)) limit_ = *given;
  for (int i = 0; i < 2; i++) {
    auto started = TestRun::Start(test_, {}, directory_ + "/without-faults", limit_, {}, true);
    if (!started) return tl::unexpected(started.error());
    std::optional<RunResult> result = Await(std::move(*started));
    if (!result) return tl::unexpected(std::string("interrupted"));
    const auto& expected = request_.judge.expected;
    const bool passes =
        result->end == RunResult::End::kStatus &&
        (result->status == 0 || std::ranges::find(expected, result->status) != expected.end());
    const std::string sanitizer = SanitizerLine(result->output);
    if (!passes || !sanitizer.empty()) {
      std::string message =
          "the test fails without a fault: " + (passes ? sanitizer : result->why) +
          "; mend it first, or allow its status with --expect. Its output:";
      for (const std::string& line : LastLines(result->output, kOutputLines)) {
        message += "\n  " + line;
      }
      return tl::unexpected(message);
    }
    if (result->server_was_stopped) test_.end_timeout = kServerEndsWithin;
    if (i > 0) {
      dry_.counts_repeat = result->host.count == dry_.result.host.count;
      LeaveRepeatedStacks(dry_.result.host, result->host);
    }
    // A program may break a rule of the checks in one of several orders of its threads.
    std::vector<CheckFinding> findings = std::move(dry_.result.findings);
    dry_.result = std::move(*result);
    for (CheckFinding& finding : findings) dry_.result.findings.push_back(std::move(finding));
  }
  std::set<std::string> frames;
  for (const auto& [moment, stack] : dry_.result.host.stacks) {
    frames.insert(stack.begin(), stack.end());
  }
  dry_.frames = DescribeFrames(frames);
  if (request_.limit.empty()) {
    limit_ = std::clamp(dry_.result.took * kLimitFactor, kLeastLimit, kMostLimit);
    // A server that its client has left is no hung run until its own time is over.
    const std::string& server_ends =
        test_.end_timeout.empty() ? test_.listen_timeout : test_.end_timeout;
    if (test_.is_pair()) limit_ += ParseDuration(server_ends).value_or(Duration());
  }
  return {};
}

void SweepRunner::SetBudget(Duration budget) { end_ = runtime::RealNow() + budget; }

bool SweepRunner::IsOver() const {
  return is_interrupted() || (end_ && runtime::RealNow() >= *end_);
}

bool SweepRunner::is_interrupted() const { return interrupted != 0; }

void SweepRunner::SetFindings(const std::vector<Outcome>& earlier) {
  reports_ = static_cast<uint64_t>(
      std::ranges::count_if(earlier, [](const Outcome& each) { return !each.report.empty(); }));
}

std::optional<RunResult> SweepRunner::Await(TestRun run) {
  bool is_stopped = false;
  while (true) {
    const Time now = runtime::RealNow();
    if (is_interrupted() && !std::exchange(is_stopped, true)) run.Stop(now);
    if (std::optional<RunResult> result = run.Poll(now)) {
      if (is_stopped) return std::nullopt;
      return result;
    }
    pollfd end{run.fd(), POLLIN, 0};
    poll(&end, 1, ToPollTimeout(std::min<Duration>(run.deadline() - now, kLongestPoll)));
  }
}

std::optional<SweepRunner::Job> SweepRunner::NextOf(const NextJob& next) {
  if (is_interrupted()) return std::nullopt;
  if (!report_jobs_.empty()) {
    Job job = std::move(report_jobs_.front());
    report_jobs_.pop_front();
    return job;
  }
  return next();
}

void SweepRunner::Fill(std::optional<Slot>& slot, const std::string& directory,
                       const NextJob& next) {
  while (!slot) {
    std::optional<Job> job = NextOf(next);
    if (!job) return;
    auto started = TestRun::Start(test_, job->one, directory, limit_, job->report);
    if (started) {
      slot.emplace(Slot{std::move(*job), std::move(*started)});
      return;
    }
    RunResult failed;
    failed.why = started.error();
    job->ended(std::move(failed));
  }
}

void SweepRunner::EndReports() {
  while (!report_jobs_.empty()) {
    const Job job = std::move(report_jobs_.front());
    report_jobs_.pop_front();
    job.ended(std::nullopt);
  }
}

void SweepRunner::RunJobs(const NextJob& next) {
  std::vector<std::optional<Slot>> slots(std::max(1u, request_.jobs));
  bool is_stopped = false;
  while (true) {
    const Time now = runtime::RealNow();
    if (is_interrupted() && !std::exchange(is_stopped, true)) {
      for (std::optional<Slot>& slot : slots) {
        if (slot) slot->run.Stop(now);
      }
    }
    // The end of a job may add others. The slots are therefore filled afterwards.
    for (std::optional<Slot>& slot : slots) {
      std::optional<RunResult> result = slot ? slot->run.Poll(now) : std::nullopt;
      if (!result) continue;
      const Job job = std::move(slot->job);
      slot.reset();
      if (is_stopped) result.reset();
      job.ended(std::move(result));
    }
    std::vector<pollfd> fds;
    Duration wait = kLongestPoll;
    for (size_t i = 0; i < slots.size(); i++) {
      Fill(slots[i], directory_ + "/run-" + std::to_string(i), next);
      if (!slots[i]) continue;
      fds.push_back({slots[i]->run.fd(), POLLIN, 0});
      wait = std::min<Duration>(wait, slots[i]->run.deadline() - now);
    }
    if (fds.empty()) break;
    poll(fds.data(), fds.size(), ToPollTimeout(wait));
  }
  EndReports();
  if (has_terminal_) fprintf(stderr, "\r\033[K");
}

SweepRunner::Judgement SweepRunner::JudgementOf(const SweepCase& one, RunResult run) const {
  const Judged judged = Judge(one, run, dry_, request_.judge);
  return {std::move(run), judged};
}

void SweepRunner::RunAll(const std::vector<SweepCase>& cases, uint64_t max_runs, const Done& done) {
  const size_t end = max_runs == 0 ? cases.size() : std::min<size_t>(cases.size(), max_runs);
  size_t begun = 0;
  uint64_t finished = 0, findings = 0;
  RunJobs([&]() -> std::optional<Job> {
    if (begun == end || IsOver()) return std::nullopt;
    const size_t index = begun++;
    return Job{.one = cases[index], .ended = [&, index](std::optional<RunResult> run) {
                 if (!run) return;
                 const SweepCase& one = cases[index];
                 const Judgement judgement = JudgementOf(one, std::move(*run));
                 findings += IsFinding(judgement.judged.verdict) ? 1 : 0;
                 Finish(one, judgement, done);
                 ShowProgress(++finished, end, findings);
               }};
  });
}

void SweepRunner::Finish(const SweepCase& one, const Judgement& judgement, const Done& done) {
  Outcome outcome;
  outcome.id = one.Id();
  for (const SweepFaultAt& fault : one.faults) {
    const std::string code = dry_.CodeOf(fault.moment);
    if (!code.empty()) outcome.code.push_back(fault.moment.ToString() + ": " + code);
  }
  outcome.verdict = judgement.judged.verdict;
  outcome.reason = judgement.judged.reason;
  outcome.took = judgement.run.took;
  const std::vector<std::string> last_lines = LastLines(judgement.run.output, kOutputLines);
  if (outcome.verdict == Verdict::kNotRun) {
    for (const std::string& line : last_lines) outcome.reason += "; " + line;
  }
  if (!IsFinding(outcome.verdict)) return done(std::move(outcome));
  outcome.rules = one.Rules();
  std::vector<std::string> output;
  if (outcome.verdict != Verdict::kLeaked && outcome.verdict != Verdict::kMisused) {
    for (const std::string& line : last_lines) output.push_back("| " + line);
  }
  if (reports_ == kMaxReports || is_interrupted()) {
    outcome.details = std::move(output);
    outcome.command = ReproduceCommand(request_.test, one, {});
    return done(std::move(outcome));
  }
  char name[32];
  snprintf(name, sizeof name, "finding-%03llu", static_cast<unsigned long long>(++reports_));
  outcome.report = name;
  const std::string report = directory_ + "/" + name;
  outcome.command = ReproduceCommand(request_.test, one, report);
  std::error_code error;
  fs::remove_all(report, error);
  report_jobs_.push_back(
      {.one = one,
       .report = report,
       .ended = [this, one, report, outcome, output, whole = judgement.run.output,
                 done](const std::optional<RunResult>& run) mutable {
         if (run) {
           outcome.details = run->threads;
           const Judged judged = Judge(one, *run, dry_, request_.judge);
           if (judged.verdict != outcome.verdict) {
             outcome.details.push_back(std::string("a second run: ") + VerdictName(judged.verdict) +
                                       ": " + judged.reason);
           }
         }
         for (std::string& call : UnfinishedCalls(report)) {
           outcome.details.push_back(std::move(call));
         }
         std::error_code failed;
         fs::create_directories(report, failed);
         std::ofstream(report + "/rules.toml")
             << kWitnessComment << WitnessRules(test_.is_on_system) << "\n# The case.\n"
             << outcome.rules;
         std::ofstream(report + "/output.txt") << whole;
         outcome.details.insert(outcome.details.end(), output.begin(), output.end());
         done(std::move(outcome));
       }});
}

void SweepRunner::ShowProgress(uint64_t runs, uint64_t planned, uint64_t findings) {
  const Time now = runtime::RealNow();
  if (!has_terminal_ && now - progress_at_ < kProgressEvery) return;
  if (!has_terminal_ && progress_at_ == Time{}) {
    progress_at_ = now;  // a short sweep prints nothing
    return;
  }
  progress_at_ = now;
  const std::string of = planned == 0 ? "" : " of " + std::to_string(planned);
  fprintf(stderr, "%s%llu%s runs, %llu findings%s", has_terminal_ ? "\r\033[K" : "",
          static_cast<unsigned long long>(runs), of.c_str(),
          static_cast<unsigned long long>(findings), has_terminal_ ? "" : "\n");
}

}  // namespace rdmaemu::cli
