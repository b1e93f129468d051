// `rdmaemu trace`: shows, sums up and compares traces (tools/trace). Each function returns the
// process's exit status and prints errors as one line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"
#include "tools/trace/accept.h"
#include "tools/trace/record.h"

namespace rdmaemu::cli {

// Of `trace diff` and `ab`. docs/command.md has the table of all exit statuses.
inline constexpr int kDifferent = 122;
inline constexpr int kUnusedAcceptance = 123;  // the traces are the same otherwise

struct TraceShowRequest {
  std::vector<std::string> files, objects, kinds, whats, processes;
  std::optional<std::string> from, to;  // "1.5s" since the first record
  bool json = false;
};
int TraceShow(const TraceShowRequest& request);

int TraceSummary(const std::vector<std::string>& files, bool json);

struct CompareOptions {
  std::string accept, junit;  // files; empty: none
  bool json = false, timing = false;
};
int TraceDiff(const std::string& a, const std::string& b, const CompareOptions& options);

// ---- for `ab`

// Reads a trace. Notes on stderr say what was left out.
runtime::OrMessage<std::unique_ptr<trace_tools::Trace>> LoadTrace(const std::string& path);

// Reads the file of --accept. An empty path has no acceptances.
runtime::OrMessage<std::vector<trace_tools::Acceptance>> LoadAcceptances(const std::string& path);

// How a program of the test ended on both sides: "0", "signal 11".
struct RunStatus {
  std::string what, a, b;
};

// Compares, prints the report, and writes the JUnit file. Returns 0, kDifferent or
// kUnusedAcceptance, and `failed` after an error.
int CompareAndReport(const trace_tools::Trace& a, const trace_tools::Trace& b,
                     const std::vector<RunStatus>& statuses,
                     std::vector<trace_tools::Acceptance> acceptances,
                     const CompareOptions& options, int failed);

}  // namespace rdmaemu::cli
