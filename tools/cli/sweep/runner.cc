#include "tools/cli/sweep/runner.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emulator/runtime/clock.h"
#include "tools/cli/duration.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOutputLines = 12;  // of a finding
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
                                          "note: host sweep ", "note: the usage checks found"};
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
  size_t index;
  TestRun run;
};

SweepRunner::SweepRunner(const SweepRequest& request, std::string directory)
    : request_(request),
      test_(request.test),
      directory_(std::move(directory)),
      has_terminal_(isatty(2) == 1) {
  struct sigaction action {};
  action.sa_handler = Interrupt;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

tl::expected<void, std::string> SweepRunner::RunWithoutFaults() {
  if (const auto given = ParseDuration(request_.limit)) limit_ = *given;
  for (int i = 0; i < 2; i++) {
    auto started = TestRun::Start(test_, {}, directory_ + "/without-faults", limit_);
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
    if (i > 0) dry_.counts_repeat = result->host.count == dry_.result.host.count;
    // A program may break a rule of the checks in one of several orders of its threads.
    std::vector<CheckFinding> findings = std::move(dry_.result.findings);
    dry_.result = std::move(*result);
    for (CheckFinding& finding : findings) dry_.result.findings.push_back(std::move(finding));
  }
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

std::optional<SweepRunner::Judgement> SweepRunner::RunOne(const SweepCase& one) {
  auto started = TestRun::Start(test_, one, directory_ + "/run-0", limit_);
  std::optional<Judgement> judgement(std::in_place);
  judgement->judged.reason = started ? "" : started.error();
  if (!started) return judgement;
  std::optional<RunResult> result = Await(std::move(*started));
  if (!result) return std::nullopt;
  judgement->judged = Judge(one, *result, dry_, request_.judge);
  judgement->run = std::move(*result);
  return judgement;
}

void SweepRunner::RunAll(const std::vector<SweepCase>& cases, uint64_t max_runs, const Done& done) {
  const size_t end = max_runs == 0 ? cases.size() : std::min<size_t>(cases.size(), max_runs);
  std::vector<std::optional<Slot>> slots(std::max(1u, request_.jobs));
  size_t next = 0, finished = 0;
  uint64_t findings = 0;
  bool is_stopped = false;
  while (true) {
    const Time now = runtime::RealNow();
    if (is_interrupted() && !std::exchange(is_stopped, true)) {
      for (std::optional<Slot>& slot : slots) {
        if (slot) slot->run.Stop(now);
      }
    }
    std::vector<pollfd> fds;
    Duration wait = kLongestPoll;
    for (size_t i = 0; i < slots.size(); i++) {
      std::optional<Slot>& slot = slots[i];
      if (slot) {
        if (std::optional<RunResult> result = slot->run.Poll(now)) {
          const SweepCase& one = cases[slot->index];
          slot.reset();
          if (is_stopped) continue;
          const Judged judged = Judge(one, *result, dry_, request_.judge);
          findings += IsFinding(judged.verdict) ? 1 : 0;
          done(Finish(one, {std::move(*result), judged}));
          ShowProgress(++finished, end, findings);
        }
      }
      if (!slot && next < end && !IsOver()) {
        auto started =
            TestRun::Start(test_, cases[next], directory_ + "/run-" + std::to_string(i), limit_);
        if (started) {
          slot.emplace(Slot{next, std::move(*started)});
        } else {
          Outcome outcome;
          outcome.id = cases[next].Id();
          outcome.reason = started.error();
          done(std::move(outcome));
        }
        next++;
      }
      if (!slot) continue;
      fds.push_back({slot->run.fd(), POLLIN, 0});
      wait = std::min<Duration>(wait, slot->run.deadline() - now);
    }
    if (fds.empty() && (next >= end || IsOver())) break;
    poll(fds.data(), fds.size(), ToPollTimeout(wait));
  }
  if (has_terminal_) fprintf(stderr, "\r\033[K");
}

Outcome SweepRunner::Finish(const SweepCase& one, const Judgement& judgement) {
  Outcome outcome;
  outcome.id = one.Id();
  outcome.verdict = judgement.judged.verdict;
  outcome.reason = judgement.judged.reason;
  outcome.took = judgement.run.took;
  if (outcome.verdict == Verdict::kNotRun) {
    for (const std::string& line : LastLines(judgement.run.output, kOutputLines)) {
      outcome.reason += "; " + line;
    }
  }
  if (IsFinding(outcome.verdict)) Report(one, judgement, outcome);
  return outcome;
}

void SweepRunner::Report(const SweepCase& one, const Judgement& judgement, Outcome& outcome) {
  outcome.rules = one.Rules();
  std::string report;
  if (reports_ < kMaxReports && !is_interrupted()) {
    char name[32];
    snprintf(name, sizeof name, "finding-%03llu", static_cast<unsigned long long>(++reports_));
    outcome.report = name;
    report = directory_ + "/" + name;
    std::error_code error;
    fs::remove_all(report, error);
    auto again = TestRun::Start(test_, one, directory_ + "/run-again", limit_, report);
    const std::optional<RunResult> result =
        again ? Await(std::move(*again)) : std::optional<RunResult>();
    if (result) {
      outcome.details = result->threads;
      const Judged judged = Judge(one, *result, dry_, request_.judge);
      if (judged.verdict != outcome.verdict) {
        outcome.details.push_back(std::string("a second run: ") + VerdictName(judged.verdict) +
                                  ": " + judged.reason);
      }
    }
    for (std::string& call : UnfinishedCalls(report)) outcome.details.push_back(std::move(call));
    std::ofstream(report + "/rules.toml") << outcome.rules;
    std::ofstream(report + "/output.txt") << judgement.run.output;
  }
  if (outcome.verdict != Verdict::kLeaked && outcome.verdict != Verdict::kMisused) {
    for (const std::string& line : LastLines(judgement.run.output, kOutputLines)) {
      outcome.details.push_back("| " + line);
    }
  }
  outcome.command = ReproduceCommand(request_.test, one, report);
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
