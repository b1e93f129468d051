// The files through which the checks of a program's processes report to `rdmaemu run`. A directory
// holds both files. Writer and reader are always of one build.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu::layer::checks {

inline constexpr uint64_t kControlMagic = 0x314b4345'48434d45;  // "EMCHECK1"
inline constexpr const char* kControlName = "control";
// JSON lines, one for each rule and place. A process appends a line by one write(2), so a crash
// loses nothing. `rdmaemu run` prints them, because a program may have closed its standard error,
// or given its descriptor to something else.
inline constexpr const char* kFindingsName = "findings.jsonl";
inline constexpr uint32_t kMaxFindings = 4096;
// A watch_error: the system accepts breakpoints, and the processor ignores them.
inline constexpr int kBreakpointsIgnored = -1;

// `control`, mapped by each process.
struct Control {
  uint64_t magic;
  std::atomic<uint32_t> findings;   // numbers that are taken, from 0; may exceed kMaxFindings
  std::atomic<uint32_t> processes;  // that loaded the checks
  // Calls that were not checked, because a signal handler interrupted a check of its own thread.
  std::atomic<uint64_t> skipped;
  // Why RDMAEMU-MR-008 was not checked: the errno with which a system refused breakpoints, or
  // kBreakpointsIgnored. 0: the rule was checked.
  std::atomic<int> watch_error;
  // How often each finding was made, by its number.
  std::atomic<uint64_t> times[kMaxFindings];
};

}  // namespace rdmaemu::layer::checks
