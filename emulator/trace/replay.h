// Compares two runs by their traces (JSON lines), and finds the first difference.
//
// A sequence holds the records of one kind and one process, in their order. Processes are numbered
// in the order in which they connected. Number 0 is the host itself. The comparison covers the kind
// of each record, its `what`, and the fields errno, status, reason and at. For a fault rule it also
// covers the name. The comparison does not cover times, numbers of objects and the order of
// different sequences, because these depend on the scheduling of processes and threads. Calls of
// tools (`rdmaemu hosts`) are skipped.
//
// Calls that fetch an event form their own sequence, because programs make them in a separate
// thread. When a process exits, events may still be in flight to it. Suppose that a process ended
// in one run. Then events and fetches beyond the last one of that run are not compared. Fetches
// from a channel that the program has destroyed (EBADF) are never compared. When all processes
// ended, the same rule applies to the host's last DREQ and DREP messages, which form a separate
// sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/base/result.h"

namespace rdmaemu::trace {

struct Decision {
  size_t line = 0;       // in the trace, from 1
  uint32_t process = 0;  // 0: the host itself; others from 1, in the order of connection
  std::string kind;      // of the record; or kFetch, or kDisconnects
  std::string text;      // "call create_id errno 0"
};

// The calls that fetch an event, and the CM messages that end a connection.
inline constexpr std::string_view kFetch = "call.fetch", kDisconnects = "cm.disconnect";

struct Run {
  std::string seed;  // the run's seed; empty: the trace has none
  std::vector<Decision> decisions;
  std::set<uint32_t> ended;  // processes that ended before the trace did
  bool all_ended = false;
};

// The most compared lines of a trace.
inline constexpr size_t kMaxDecisions = 4'000'000;

// Reads a trace's records, line by line.
class RunReader {
 public:
  // Reads a line without its newline. Returns the line's decision, or nothing when the line is not
  // compared. An error is one sentence that names the line.
  tl::expected<std::optional<Decision>, std::string> Take(std::string_view line);
  const std::string& seed() const { return seed_; }
  const std::set<uint32_t>& ended() const { return ended_; }
  // Returns true when every process that did more than connect has ended. `rdmaemu run` itself only
  // connects.
  bool all_ended() const {
    return !ended_.empty() && std::ranges::all_of(active_, [&](uint32_t one) {
      return one == 0 || ended_.contains(one);
    });
  }

 private:
  size_t lines_ = 0, decisions_ = 0;
  std::string seed_;
  std::map<int64_t, uint32_t> numbers_ = {{0, 0}};  // process numbers, by the trace's own
  std::set<uint32_t> active_, ended_;
};

// Reads the text of a trace. Errors are those of RunReader::Take.
tl::expected<Run, std::string> ParseRun(std::string_view json_lines);

struct Departure {
  size_t line = 0;  // of the earlier trace; 0: the later run continued after the earlier end
  uint32_t process = 0;
  std::string earlier, later;  // the decisions; empty: no more of this kind
};

// Returns the first departure in the order of the earlier trace, or nothing when the runs agree.
std::optional<Departure> FirstDeparture(const Run& earlier, const Run& later);

// Finds departures while the later run continues. Take reports a different or an additional
// decision at once. A missing decision is detected only at the run's end.
class RunFollower {
 public:
  explicit RunFollower(const Run& earlier);
  // Reads a line of the later trace. Returns a departure, or nothing. Errors are those of
  // RunReader::Take.
  tl::expected<std::optional<Departure>, std::string> Take(std::string_view line);

 private:
  struct Sequence {
    std::vector<Decision> decisions;
    size_t next = 0;
  };
  RunReader reader_;
  Run ends_;  // which processes of the earlier run ended; no decisions
  std::map<std::pair<uint32_t, std::string>, Sequence> earlier_;  // by process and kind
};

}  // namespace rdmaemu::trace
