// Merges records of several traces by time, and selects records.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// The records to show. An empty set selects all records.
struct Selection {
  std::set<std::string> objects = {};    // "qp1"; of a host "qp 17"; "qp": all objects of this kind
  std::set<std::string> kinds = {};      // "call", "cm.send"
  std::set<std::string> whats = {};      // "post_send", "ESTABLISHED"
  std::set<std::string> processes = {};  // a pid, or the name of a host
  std::optional<int64_t> from_ns = {},
                         to_ns = {};  // since the first record of all traces; both inclusive
};

// Returns the records of all traces, sorted by time. Records of the same time keep the order of
// their files. Traces with clocks of their own are shifted together, because hosts on a virtual
// clock share this clock. The earliest of these traces begins at the earliest time of the other
// traces.
std::vector<Record> Merge(const std::vector<Trace*>& traces);

// Returns the selected records. A record is about its object, and about each object that its
// arguments or its result name.
std::vector<Record> Select(const std::vector<Record>& records, const Selection& selection);

}  // namespace rdmaemu::trace_tools
