// Implements `rdmaemu trace`, which shows, summarizes, draws and compares traces (tools/trace).
// `TraceShow`, `TraceSummary`, `TraceLadder` and `TraceDiff` return the process's exit status, and
// print an error as one line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"
#include "tools/trace/accept.h"
#include "tools/trace/record.h"

namespace rdmaemu::cli {

// Exit statuses of `trace diff` and `ab`. docs/command.md has the table of all exit statuses.
inline constexpr int kDifferent = 122;
inline constexpr int kUnusedAcceptance = 123;  // the traces are the same otherwise

struct TraceShowRequest {
  std::vector<std::string> files, objects, kinds, whats, processes;
  std::optional<std::string> from, to;  // "1.5s" since the first record
  bool json = false;
};
int TraceShow(const TraceShowRequest& request);

int TraceSummary(const std::vector<std::string>& files, bool json);

struct TraceLadderRequest {
  std::vector<std::string> files;
  std::optional<std::string> from, to;  // "1.5s" since the first record
  std::string out;
};
// Writes the page of docs/ladder.md.
int TraceLadder(const TraceLadderRequest& request);

struct CompareOptions {
  std::string accept, junit;  // files; empty: none
  bool json = false, timing = false;
};
int TraceDiff(const std::string& a, const std::string& b, const CompareOptions& options);

// ---- for `ab`

// Reads a trace file. Prints a note to stderr when the last line is cut and therefore omitted.
runtime::OrMessage<std::unique_ptr<trace_tools::Trace>> LoadTrace(const std::string& path);

// Reads the file of --accept. Returns no acceptances for an empty path.
runtime::OrMessage<std::vector<trace_tools::Acceptance>> LoadAcceptances(const std::string& path);

// The exit statuses of one program of the test on both sides: "0", "signal 11".
struct RunStatus {
  std::string what, a, b;
};

// Compares the traces and statuses, prints the report, and writes the JUnit file. Returns 0,
// kDifferent or kUnusedAcceptance. Returns `failed` after an error, which it prints.
int CompareAndReport(const trace_tools::Trace& a, const trace_tools::Trace& b,
                     const std::vector<RunStatus>& statuses,
                     std::vector<trace_tools::Acceptance> acceptances,
                     const CompareOptions& options, int failed);

}  // namespace rdmaemu::cli
