// What traces hold in numbers: counts, how long calls took, and objects that were left.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// How long the calls of one name took.
struct CallTimes {
  std::string what;
  size_t count = 0, failed = 0;
  size_t timed = 0;  // calls with a duration; without one the figures below are 0
  int64_t min_ns = 0, median_ns = 0, p99_ns = 0, max_ns = 0;
};

// An object that its process had not destroyed when the trace ended.
struct LeftOpen {
  std::string object;
  Record created_by;  // the call that returned it, or the event that brought it
};

struct Summary {
  size_t records = 0;
  int64_t length_ns = 0;  // from the first record to the last
  std::map<std::pair<std::string, std::string>, size_t> counts;  // by kind and what
  std::vector<CallTimes> calls;                                  // by name
  std::vector<Record> longest_waits;  // calls, the longest first; at most kLongestWaits
  std::vector<LeftOpen> left_open;    // in the order of their creation
  size_t lost = 0;                    // records of kind "lost": figures are then too low
};

inline constexpr size_t kLongestWaits = 10;

Summary Summarize(const std::vector<Record>& merged);

// `names`: of the merged traces' files, for the places of records.
std::string SummaryText(const Summary& summary, const std::vector<std::string>& names);
Json SummaryJson(const Summary& summary, const std::vector<std::string>& names);

// "a.jsonl:12".
std::string PlaceOf(const Record& record, const std::vector<std::string>& names);

}  // namespace rdmaemu::trace_tools
