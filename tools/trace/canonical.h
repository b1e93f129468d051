// What of a program trace must be the same in another run. Canonicalisation
//
// - divides the records into streams, in which the order must be the same: those of one object in
// one
//   thread; and of completions those of one queue pair and one direction, whichever thread polled
//   them. The order of different streams depends on timing.
// - names processes by their program and their order, and threads by what they do.
// - numbers objects in the order in which their thread created them: "qp2", "qp1@2" of thread 2.
// - replaces numbers that the machine chose (keys, PSNs, addresses, large wr_ids) by names:
// "rkey#1".
// - leaves out records whose number depends on timing: polls, and fetches of events, which have
//   records of their own.
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
  std::string part;     // "sends", "receives", "memory" of completions; empty: all else
  auto operator<=>(const StreamKey&) const = default;
};

struct Item {
  size_t line = 0;
  int64_t since_start_ns = 0;  // since the first record of the trace
  // The record's parts, each with a newline behind it: "call reg_mr", "access=[LOCAL_WRITE]",
  // "result=mr1", "errno=...". Two items are equal when their texts are.
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

// Canonicalises both traces, so that their threads have the same numbers. An error is one sentence.
tl::expected<std::pair<CanonicalTrace, CanonicalTrace>, std::string> Canonicalize(
    const Trace& a, const Trace& b, const CanonicalOptions& options);

// "call reg_mr" of an item's text, and the item on one line. Each part is cut to `part_bytes`.
std::string HeadOf(const std::string& text);
std::string ItemLine(const std::string& text, size_t part_bytes = std::string::npos);

}  // namespace rdmaemu::trace_tools
