// The differences between two canonical traces.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/trace/canonical.h"

namespace rdmaemu::trace_tools {

// A part of a record that both traces have, with other values. An empty value: the part is missing.
struct PartDifference {
  std::string part, a, b;
  bool operator==(const PartDifference&) const = default;
};

// A record that one trace lacks, or that both have with other parts.
struct Difference {
  StreamKey stream;
  std::string head;  // "call reg_mr", "event ESTABLISHED"
  std::optional<Item> a, b;
  std::vector<PartDifference> parts;  // where both have it
  size_t equal_before = 0;            // records of the stream that are equal up to here
  std::vector<Item> context_a;        // the last of them, at most kContextRecords; lines of trace a
  std::vector<size_t> context_b;      // the lines of trace b
  int64_t order_ns = 0;  // when it happened, since the first record of trace a, or of b
  std::string accepted;  // the reason of an acceptance; empty: not accepted
};

inline constexpr size_t kContextRecords = 3;

struct Comparison {
  std::vector<Difference> differences;  // by time; the first one is the first that happened
  std::vector<StreamKey> streams;       // all that were compared
  std::vector<StreamKey> not_aligned;   // beyond kMaxEdits: nothing in them was aligned
  size_t records_a = 0, records_b = 0, compared_a = 0, compared_b = 0;

  // Returns the first difference that is not accepted, or nullptr.
  const Difference* First() const;
};

Comparison Compare(const CanonicalTrace& a, const CanonicalTrace& b);

// Adds that something of the whole run is different: the exit status of a program.
void AddRunDifference(const std::string& what, const std::string& a, const std::string& b,
                      Comparison& comparison);

// "rping, thread 1, qp1", "rping, qp1 sends".
std::string StreamText(const StreamKey& stream);

}  // namespace rdmaemu::trace_tools
