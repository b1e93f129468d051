// Random combinations of faults (`rdmaemu sweep --random`).
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tools/cli/sweep/runner.h"

namespace rdmaemu::cli {

// Draws a first fault from the plan. Draws the further ones from the moments that a run with the
// first fault passes after it, because mistakes that need two faults are mostly in the handling of
// the first. The same seed draws the same combinations.
class RandomCases {
 public:
  // The most faults of one combination.
  static constexpr size_t kMaxFaults = 3;
  // Half of the further faults are at one of this many moments after the first fault.
  static constexpr size_t kSoonMoments = 6;
  // Draws that gave a known combination. Above this number there is nothing new to draw.
  static constexpr uint64_t kMaxVainDraws = 10'000;

  RandomCases(SweepRunner& runner, std::vector<SweepCase> plan, const SweepRequest& request);

  // Runs combinations until the runner's budget is used up. A finding is reduced to the fewest
  // faults that show the same verdict. Of the findings of a usage check at one place of the
  // program, only the first is reported.
  void Run(const SweepRunner::Done& done);

 private:
  // The moments after a first fault.
  struct After {
    bool is_finding = false;
    std::vector<Moment> moments;
  };
  const After* AfterFault(const SweepCase& first, const SweepRunner::Done& done);
  std::optional<SweepCase> Draw(const SweepRunner::Done& done);
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  void Report(const SweepCase& found, const SweepRunner::Judgement& judgement,
              const SweepRunner::Done& done);

  SweepRunner& runner_;
  std::vector<SweepCase> plan_;
  const SweepRequest& request_;
  std::mt19937_64 random_;
  std::map<std::string, After> after_;
  std::set<std::string> tried_, reported_;
  uint64_t runs_ = 0, findings_ = 0;
};

}  // namespace rdmaemu::cli
