// `rdmaemu sweep`: runs a test once for each fault that can happen in it (docs/sweep.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/sweep/cases.h"
#include "tools/cli/sweep/test_run.h"
#include "tools/cli/sweep/verdict.h"

namespace rdmaemu::cli {

// The most minutes of random cases: about a year.
inline constexpr int kMaxMinutes = 500'000;

struct SweepRequest {
  SweptTest test;
  PlanOptions plan;
  JudgeOptions judge;
  std::vector<std::string> cases = {};  // ids: only these, instead of a plan
  uint64_t max_runs = 0;                // 0: no limit
  std::string time_budget = "1min";     // for the plan; "0": no limit
  std::string limit = {};               // of one run; empty: from the run without faults
  unsigned jobs = 1;
  std::string directory = "rdmaemu-sweep";
  std::string baseline = {}, junit = {};
  bool is_resumed = false, is_json = false;
  bool is_random = false;
  bool lists_sites = false;  // print the sites, and run no case
  double minutes = 1;        // of random cases; above 0, at most kMaxMinutes
};
// Returns 0 without new findings, 1 with some, or a status of commands.h.
int Sweep(const SweepRequest& request);

}  // namespace rdmaemu::cli
