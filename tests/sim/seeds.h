// Runs many seeds on all cores, each in a run of its own, and reports failures in the order of
// their seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/simulation.h"

namespace rdmaemu::sim {

struct Summary {
  uint64_t runs = 0;
  Tally tally;
  std::vector<Outcome> failures;  // by seed; at most kMaxFailures
};

inline constexpr size_t kMaxFailures = 5;
// Every kTwiceEvery-th seed runs twice, and both runs must be equal.
inline constexpr uint64_t kTwiceEvery = 50;

// Runs first, first + 1, ... until `last` has run or `more` returns false. One thread at a time
// calls `more` before each seed, with the numbers of runs and failures so far.
Summary RunSeeds(const Kind& kind, uint64_t first, uint64_t last,
                 const std::function<bool(uint64_t runs, size_t failures)>& more);

// Returns a report of a failed run for a person: the command that repeats it, the complaints, the
// story.
std::string Report(const Kind& kind, const Outcome& failure);

}  // namespace rdmaemu::sim
