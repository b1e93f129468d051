// Compares two canonical traces and lists their differences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/trace/canonical.h"

namespace rdmaemu::trace_tools {

// A part whose values differ in a record that both traces have. An empty value means that the
// record of this trace lacks the part.
struct PartDifference {
  std::string part, a, b;
  bool operator==(const PartDifference&) const = default;
};

// A record that only one trace has, or a record of both traces with different parts.
struct Difference {
  StreamKey stream;
  std::string head;  // "call reg_mr", "event ESTABLISHED"
  std::optional<Item> a, b;
  std::vector<PartDifference> parts;  // of a record that both traces have
  size_t equal_before = 0;            // equal records of the stream before this one
  std::vector<Item> context_a;        // the last equal records of trace a, at most kContextRecords
  std::vector<size_t> context_b;      // line numbers of these records in trace b
  int64_t order_ns = 0;  // time since the first record of trace a; of b when a lacks the record
  std::string accepted;  // the reason of an acceptance; empty: not accepted
};

inline constexpr size_t kContextRecords = 3;

struct Comparison {
  std::vector<Difference> differences;  // sorted by time; the first one is the earliest
  std::vector<StreamKey> streams;       // all compared streams
  std::vector<StreamKey> not_aligned;   // streams that need more than kMaxEdits edits
  size_t records_a = 0, records_b = 0, compared_a = 0, compared_b = 0;

  // Returns the first difference that is not accepted, or nullptr.
  const Difference* First() const;
};

Comparison Compare(const CanonicalTrace& a, const CanonicalTrace& b);

// Adds a difference of the whole run, such as the exit status of a program. `a` and `b` are the two
// values.
void AddRunDifference(const std::string& what, const std::string& a, const std::string& b,
                      Comparison& comparison);

// Returns the stream's name for people: "rping, thread 1, qp1", "rping, qp1 sends".
std::string StreamText(const StreamKey& stream);

}  // namespace rdmaemu::trace_tools
