// Runs the cases of a sweep, several side by side, and judges them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/cli/sweep/outcome.h"
#include "tools/cli/sweep/sweep.h"

namespace rdmaemu::cli {

class SweepRunner {
 public:
  // The limit of a run without faults, and of a run with faults: kLimitFactor times what the run
  // without faults took, between kLeastLimit and kMostLimit.
  static constexpr Duration kDryLimit = std::chrono::seconds(60);
  static constexpr int kLimitFactor = 20;
  static constexpr Duration kLeastLimit = std::chrono::seconds(3);
  static constexpr Duration kMostLimit = std::chrono::seconds(60);
  // Each new finding is run once more for its report, up to this many.
  static constexpr uint64_t kMaxReports = 100;
  // A server that does not end by itself gets this long after its client.
  static constexpr const char* kServerEndsWithin = "200ms";
  static constexpr Duration kProgressEvery = std::chrono::seconds(10);  // without a terminal

  SweepRunner(const SweepRequest& request, std::string directory);

  // Runs the test twice without faults. Fails with a message for the user if the test fails.
  tl::expected<void, std::string> RunWithoutFaults();
  const DryRun& dry() const { return dry_; }
  const std::string& directory() const { return directory_; }

  // From now on, no case begins after this time.
  void SetBudget(Duration budget);
  bool IsOver() const;
  // True after SIGINT or SIGTERM. No further case begins then.
  bool is_interrupted() const;
  // Numbers the reports behind those of earlier outcomes.
  void SetFindings(const std::vector<Outcome>& earlier);

  // One run of the test.
  struct Job {
    SweepCase one;
    std::string report = {};  // a directory that gets the report of the run; empty: no report
    // Called at the end of the run. Gets nothing if the sweep was interrupted.
    std::function<void(std::optional<RunResult>)> ended;
  };
  // Returns the next job. Returns nothing if there is none now: the end of a running job may then
  // add another.
  using NextJob = std::function<std::optional<Job>()>;
  // Runs jobs side by side, as many as the request says. Returns when no job runs and `next` has
  // none. The runs for reports (Finish) are started first. `next` respects the budget (IsOver).
  void RunJobs(const NextJob& next);

  using Done = std::function<void(Outcome)>;
  // Runs the cases in their order, by RunJobs. Calls `done` in the order in which cases are done.
  void RunAll(const std::vector<SweepCase>& cases, uint64_t max_runs, const Done& done);

  struct Judgement {
    RunResult run;
    Judged judged;
  };
  Judgement JudgementOf(const SweepCase& one, RunResult run) const;
  // Makes the outcome of a judged case, and calls `done` with it. A finding is run once more for
  // its report, as a job of the present RunJobs. `done` is called after that run.
  void Finish(const SweepCase& one, const Judgement& judgement, const Done& done);
  void ShowProgress(uint64_t runs, uint64_t planned, uint64_t findings);

 private:
  struct Slot;
  std::optional<RunResult> Await(TestRun run);
  std::optional<Job> NextOf(const NextJob& next);
  // Fills a slot with the next job. Leaves it empty if there is none.
  void Fill(std::optional<Slot>& slot, const std::string& directory, const NextJob& next);
  void EndReports();

  const SweepRequest& request_;
  SweptTest test_;  // of the request
  std::string directory_;
  Duration limit_ = kDryLimit;
  DryRun dry_;
  std::optional<Time> end_;
  uint64_t reports_ = 0;
  std::deque<Job> report_jobs_;  // to be started
  Time progress_at_{};
  bool has_terminal_;
};

}  // namespace rdmaemu::cli
