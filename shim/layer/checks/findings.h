// The files through which the checks of a program's processes report to `rdmaemu run`. A directory
// holds both files. Writer and reader are always of one build.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmaemu::layer::checks {

inline constexpr uint64_t kControlMagic = 0x314b4345'48434d45;  // "EMCHECK1"
inline constexpr const char* kControlName = "control";
// JSON lines, one for each rule and place. A process appends a line by one write(2), so a crash
// loses nothing. `rdmaemu run` prints the lines. The program itself cannot: it may have closed its
// standard error, or reused that descriptor.
inline constexpr const char* kFindingsName = "findings.jsonl";
inline constexpr uint32_t kMaxFindings = 4096;
// A value of watch_error: the system accepts breakpoints, but the processor ignores them.
inline constexpr int kBreakpointsIgnored = -1;

// `control`, mapped by each process.
struct Control {
  uint64_t magic;
  std::atomic<uint32_t> findings;   // numbers taken so far, from 0; may exceed kMaxFindings
  std::atomic<uint32_t> processes;  // processes that have loaded the checks
  // Calls that were not checked, because a signal handler interrupted a check of its own thread.
  std::atomic<uint64_t> skipped;
  // The reason why RDMAEMU-MR-008 was not checked: the errno with which a system refused
  // breakpoints, or kBreakpointsIgnored. 0: the rule was checked.
  std::atomic<int> watch_error;
  // How often each finding was made, by the finding's number.
  std::atomic<uint64_t> times[kMaxFindings];
};

}  // namespace rdmaemu::layer::checks
