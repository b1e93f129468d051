// One run of machines, network and programs, all from one seed. A run ends when no object is left.
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
  std::string plan;                     // as text
  std::vector<std::string> story;       // the last lines, on request
};

// Gets all lines of the story as JSON.
using LineSink = std::function<void(const std::string&)>;

// Runs data and connections of correct programs. `lines` may be empty.
Outcome RunSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines = {});
// Runs connection management alone, with programs that make any call at any moment.
Outcome RunCmSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines = {});

// A kind of run: its function, the option that repeats it, and the cases that many runs must reach.
struct Kind {
  Outcome (*run)(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines);
  const char* option;
  std::vector<std::string> (*missing)(const Tally& tally);
};
inline constexpr Kind kTraffic{RunSeed, "", MissingOfTraffic};
inline constexpr Kind kCm{RunCmSeed, "--cm ", MissingOfCm};

}  // namespace rdmaemu::sim
