// Many seeds on all cores: each in a run of its own, failures told by the lowest seed first.
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
// Every this many-th seed runs twice, and must do the same both times.
inline constexpr uint64_t kTwiceEvery = 50;

// Runs first, first + 1, ... until `last` has run or `more` answers false. `more` is asked before
// each seed, with what has run so far, by one thread at a time.
Summary RunSeeds(const Kind& kind, uint64_t first, uint64_t last,
                 const std::function<bool(uint64_t runs, size_t failures)>& more);

// What a person needs of a failed run: the line that repeats it, complaints, the story.
std::string Report(const Kind& kind, const Outcome& failure);

}  // namespace rdmaemu::sim
