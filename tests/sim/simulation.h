// One run: what a seed makes of machines, network and programs, from the first step to the moment
// when nothing is left.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/recorder.h"
#include "tests/sim/tally.h"

namespace rdmaemu::sim {

struct Outcome {
  uint64_t seed = 0;
  uint64_t hash = 0;
  std::vector<std::string> complaints;  // empty: all is well
  std::string plan;                     // in words
  std::vector<std::string> story;       // the last lines, where they were asked for
};

// `lines` gets the story as JSON lines, all of it; it may be empty.
Outcome RunSeed(uint64_t seed, Recorder::Detail detail, Tally& tally,
                const std::function<void(const std::string&)>& lines = {});

}  // namespace rdmaemu::sim
