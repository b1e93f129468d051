// Runs the cases of a sweep, several side by side, and judges them.
#pragma once

#include <cstdint>
#include <functional>
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

  using Done = std::function<void(Outcome)>;
  // Runs the cases in their order, as many side by side as the request says.
  void RunAll(const std::vector<SweepCase>& cases, uint64_t max_runs, const Done& done);

  struct Judgement {
    RunResult run;
    Judged judged;
  };
  // Runs one case. Returns nothing if the sweep was interrupted.
  std::optional<Judgement> RunOne(const SweepCase& one);
  // Makes the outcome of a judged case. Runs a finding once more, for its report.
  Outcome Finish(const SweepCase& one, const Judgement& judgement);
  void ShowProgress(uint64_t runs, uint64_t planned, uint64_t findings);

 private:
  struct Slot;
  std::optional<RunResult> Await(TestRun run);
  void Report(const SweepCase& one, const Judgement& judgement, Outcome& outcome);

  const SweepRequest& request_;
  SweptTest test_;  // of the request
  std::string directory_;
  Duration limit_ = kDryLimit;
  DryRun dry_;
  std::optional<Time> end_;
  uint64_t reports_ = 0;
  Time progress_at_{};
  bool has_terminal_;
};

}  // namespace rdmaemu::cli
