// Runs many seeds of each kind. No run may break a guarantee, all runs together must reach every
// case that the simulation claims to cover, and equal seeds must give equal runs.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"

namespace rdmaemu::sim {
namespace {

// As many as reach every case.
constexpr uint64_t kTrafficSeeds = 1'500, kCmSeeds = 3'000;

void RunAll(const Kind& kind, uint64_t seeds) {
  const Summary summary = RunSeeds(kind, 1, seeds, [](uint64_t, size_t) { return true; });
  for (const Outcome& failure : summary.failures) ADD_FAILURE() << Report(kind, failure);
  if (!summary.failures.empty()) return;
  for (const std::string& missing : kind.missing(summary.tally)) {
    ADD_FAILURE() << missing << " never happened in " << summary.runs << " runs";
  }
}

TEST(Simulation, KeepsThePromisesOfRdma) { RunAll(kTraffic, kTrafficSeeds); }

TEST(Simulation, KeepsTheOrderOfRdmaCmWhateverIsCalled) { RunAll(kCm, kCmSeeds); }

TEST(Simulation, DiffersFromSeedToSeed) {
  Tally tally;
  EXPECT_NE(RunSeed(1, Recorder::Detail::kRecords, tally).hash,
            RunSeed(2, Recorder::Detail::kRecords, tally).hash);
}

// Recording the story must not change the run.
TEST(Simulation, DoesTheSameWhenItsStoryIsTold) {
  Tally tally;
  for (const Kind* kind : {&kTraffic, &kCm}) {
    EXPECT_EQ(kind->run(7, Recorder::Detail::kRecords, tally, {}).hash,
              kind->run(7, Recorder::Detail::kStory, tally, {}).hash);
  }
}

}  // namespace
}  // namespace rdmaemu::sim
