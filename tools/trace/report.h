// What a comparison found, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/accept.h"
#include "tools/trace/compare.h"

namespace rdmaemu::trace_tools {

struct Report {
  std::string name_a, name_b;  // of the traces: file names
  const Comparison& comparison;
  const std::vector<Acceptance>& acceptances;
  std::string accept_file;  // empty: none

  size_t Open() const;    // differences that are not accepted
  size_t Unused() const;  // acceptances that accepted nothing
};

// The first difference with context, all differences as a table (equal ones in one row),
// acceptances that were not used, and a last line with the verdict.
std::string ReportText(const Report& report);
Json ReportJson(const Report& report);
// JUnit's XML: a test case for each stream and for each acceptance.
std::string ReportJunit(const Report& report);

}  // namespace rdmaemu::trace_tools
