// Random combinations of faults (`rdmaemu sweep --random`).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/cli/sweep/runner.h"

namespace rdmaemu::cli {

// Draws a first fault from the plan. Draws the further ones from the moments that a run with the
// first fault has after it, because mistakes that need two faults are mostly in the handling of
// the first.
//
// A draw depends on its number, on the seed and on the runs that it needs. The draws are committed
// in the order of their numbers. The same seed therefore gives the same combinations and outcomes
// for any number of runs side by side.
class RandomCases {
 public:
  // The most faults of one combination.
  static constexpr size_t kMaxFaults = 3;
  // Half of the further faults are at one of this many moments after the first fault.
  static constexpr size_t kSoonMoments = 6;
  // Draws that gave a known combination. Above this number there is nothing new to draw.
  static constexpr uint64_t kMaxVainDraws = 10'000;
  // Draws that are evaluated before the first of them is committed, for each job.
  static constexpr size_t kDrawsAhead = 4;

  RandomCases(SweepRunner& runner, std::vector<SweepCase> plan, const SweepRequest& request);

  // Runs combinations until the runner's budget is used up. A finding is reduced to the fewest
  // faults that show the same verdict. Of the findings of a usage check at one place of the
  // program, only the first is reported.
  void Run(const SweepRunner::Done& done);

 private:
  // A run that was started, and its result.
  struct Known {
    bool is_running = true;
    bool is_counted = false;  // by a committed draw
    SweepRunner::Judgement judgement;
    std::vector<Moment> after;  // the moments after a case's only fault
  };
  // The state of a draw, as far as the known runs allow.
  struct Draw {
    uint64_t number = 0;
    std::optional<SweepCase> missing = {};  // a run that the draw waits for
    std::vector<std::string> needed = {};   // ids of the runs that were used
    std::string combination = {};           // id; empty: the draw is in vain
    // To be finished: the combination, or what it was reduced to, or the first fault if that one
    // alone is a finding.
    std::optional<SweepCase> outcome = {};
  };
  const Known* Find(const SweepCase& one, Draw& draw) const;
  Draw Evaluate(uint64_t number) const;
  // Commits draws in their order, up to the first one that waits for a run.
  void CommitDraws();
  void Commit(const Draw& draw);
  // After the budget: drops the draws that wait for a run that was not started. A finding that is
  // being reduced stays.
  void DropUnbegunDraws();
  void Finish(const SweepCase& one);
  // Calls `done` with the outcomes, in the order in which their draws were committed.
  void DeliverOutcomes();
  std::optional<SweepRunner::Job> NextJob();
  void End(const SweepCase& one, std::optional<RunResult> run);

  SweepRunner& runner_;
  std::vector<SweepCase> plan_;
  const SweepRequest& request_;
  const uint64_t seed_;
  const SweepRunner::Done* done_ = nullptr;
  std::map<std::string, Known> known_;  // by the ids of cases
  std::deque<Draw> draws_;              // that are not committed
  std::set<std::string> tried_, reported_;
  std::deque<std::shared_ptr<std::optional<Outcome>>> outcomes_;  // not delivered yet
  uint64_t next_number_ = 0, runs_ = 0, findings_ = 0, vain_ = 0;
  bool is_over_ = false;
};

}  // namespace rdmaemu::cli
