// Reduces program traces to the records and values that must be the same in two runs.
// Canonicalisation does this:
//
// - It divides the records into streams. Records of one stream must have the same order in both
//   runs. The order of different streams depends on timing.
// - A stream has the records of one object in one thread. Completions have one stream for each
//   queue pair and direction, for all threads that poll.
// - It names processes by their program and their order, and numbers threads by their calls.
// - It numbers objects in the order in which their thread first mentions them: "qp2", and "qp1@2"
//   in thread 2.
// - It replaces numbers that the machine chose (keys, PSNs, addresses, large wr_ids) by names:
//   "rkey#1".
// - It omits records whose number depends on timing: polls, and calls that fetch an event. A
//   fetched event has a record of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

struct StreamKey {
  std::string process;  // "rping", "rping.2", "rping/rping" of a forked child
  uint32_t thread = 0;  // 0: any thread
  std::string object;   // canonical name; empty: none
  std::string part;     // of completions "sends", "receives", "failed cq1"; else empty
  auto operator<=>(const StreamKey&) const = default;
};

struct Item {
  size_t line = 0;
  int64_t since_start_ns = 0;  // since the first record of the trace
  // The record's parts, each followed by a newline: "call reg_mr", "access=[LOCAL_WRITE]",
  // "result=mr1", "errno=...". Two items are equal when their texts are equal.
  std::string text;
};

using Streams = std::map<StreamKey, std::vector<Item>>;

struct CanonicalTrace {
  Streams streams;
  size_t records = 0;   // of the trace
  size_t compared = 0;  // items of all streams
};

struct CanonicalOptions {
  bool with_timing = false;  // each call has a part "took", in decades: "1 ms to 10 ms"
};

// Canonicalises both traces, of programs or of hosts (canonical_host.h). Threads that match get the
// same number in both results. Returns an error of one sentence when a trace has no records or is a
// capture, or when the traces are of different kinds.
tl::expected<std::pair<CanonicalTrace, CanonicalTrace>, std::string> Canonicalize(
    const Trace& a, const Trace& b, const CanonicalOptions& options);

// `HeadOf` returns the head of an item's text: "call reg_mr". `ItemLine` returns the item on one
// line. `ItemLine` cuts each part to `part_bytes` bytes.
std::string HeadOf(const std::string& text);
std::string ItemLine(const std::string& text, size_t part_bytes = std::string::npos);

}  // namespace rdmaemu::trace_tools
