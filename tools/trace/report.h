// Formats the result of a comparison as text, JSON and JUnit's XML.
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
  size_t Unused() const;  // acceptances for which IsUnused is true
};

// Returns the first difference with its context, a table of all differences, the unused
// acceptances, and a last line with the verdict. Equal differences share one row of the table.
std::string ReportText(const Report& report);
Json ReportJson(const Report& report);
// Returns JUnit's XML, with a test case for each stream and for each acceptance.
std::string ReportJunit(const Report& report);

}  // namespace rdmaemu::trace_tools
