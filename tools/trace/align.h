// Aligns two sequences by the shortest edit script (Myers, "An O(ND) Difference Algorithm and Its
// Variations", 1986).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rdmaemu::trace_tools {

// The largest number of deletions and insertions that `Align` searches for. Memory grows with the
// square of this number: 4000 edits take 32 MiB. When two sequences need more edits, `Align`
// matches only their common start and their common end. All elements between start and end count as
// replaced.
inline constexpr size_t kMaxEdits = 4000;

struct Step {
  enum class Kind { kSame, kOnlyA, kOnlyB };
  Kind kind;
  size_t a, b;  // indexes; of kOnlyA, `b` is where b would have the element; of kOnlyB, `a`
  bool operator==(const Step&) const = default;
};

struct Alignment {
  std::vector<Step> steps;
  bool is_exact = true;  // false: the sequences need more than kMaxEdits
};

// Returns the steps from `a` to `b`. Equal numbers are equal elements.
Alignment Align(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace rdmaemu::trace_tools
