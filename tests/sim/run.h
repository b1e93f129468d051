// The frame of every kind of run: the recorder, the verdict, and the end after an exception of the
// simulation itself.
#pragma once

#include <exception>
#include <string>

#include "tests/sim/plan.h"
#include "tests/sim/simulation.h"

namespace rdmaemu::sim {

// `Run` is constructed from plan, recorder, verdict and tally, and has Run().
template <class Run>
Outcome RunPlan(const Plan& plan, Recorder::Detail detail, Tally& tally, const LineSink& lines) {
  Recorder recorder(detail);
  if (lines) recorder.SetLineSink(lines);
  Verdict verdict;
  try {
    Run(plan, recorder, verdict, tally).Run();
  } catch (const std::exception& error) {
    verdict.Complain("simulation", std::string("stopped: ") + error.what());
  }
  return {plan.seed,
          recorder.hash(),
          verdict.complaints(),
          Describe(plan),
          {recorder.lines().begin(), recorder.lines().end()}};
}

}  // namespace rdmaemu::sim
