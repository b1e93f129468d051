// Summarizes traces: counts of records, durations of calls, and objects that were not destroyed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// Durations of the calls of one name.
struct CallTimes {
  std::string what;
  size_t count = 0, failed = 0;
  size_t timed = 0;  // calls with a duration; when 0, the figures below are 0
  int64_t min_ns = 0, median_ns = 0, p99_ns = 0, max_ns = 0;
};

// An object that its process had not destroyed when the trace ended.
struct LeftOpen {
  std::string object;
  Record created_by;  // the call that returned it, or its CONNECT_REQUEST
};

struct Summary {
  size_t records = 0;
  int64_t length_ns = 0;  // from the first record to the last
  std::map<std::pair<std::string, std::string>, size_t> counts;  // by kind and what
  std::vector<CallTimes> calls;                                  // by name
  std::vector<Record> longest_waits;  // calls, the longest first; at most kLongestWaits
  std::vector<LeftOpen> left_open;    // in the order of their creation
  size_t lost = 0;                    // records of kind "lost"; with any, the figures are too low
};

inline constexpr size_t kLongestWaits = 10;

Summary Summarize(const std::vector<Record>& merged);

// `names` has the file names of the merged traces, which the places of records contain.
std::string SummaryText(const Summary& summary, const std::vector<std::string>& names);
Json SummaryJson(const Summary& summary, const std::vector<std::string>& names);

// Returns the place of a record: "a.jsonl:12".
std::string PlaceOf(const Record& record, const std::vector<std::string>& names);

}  // namespace rdmaemu::trace_tools
