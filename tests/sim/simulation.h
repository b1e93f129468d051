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

// Gets the story as JSON lines, all of it.
using LineSink = std::function<void(const std::string&)>;

// Data and connections of programs that mean it. `lines` may be empty.
Outcome RunSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines = {});
// Connection management alone, of programs that make any call at any moment.
Outcome RunCmSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines = {});

// A kind of run: how one is done, what repeats it, and what many of them must have met.
struct Kind {
  Outcome (*run)(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines);
  const char* option;
  std::vector<std::string> (*missing)(const Tally& tally);
};
inline constexpr Kind kTraffic{RunSeed, "", MissingOfTraffic};
inline constexpr Kind kCm{RunCmSeed, "--cm ", MissingOfCm};

}  // namespace rdmaemu::sim
