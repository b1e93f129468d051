// Aligns two sequences: the shortest edit script (Myers, "An O(ND) Difference Algorithm and Its
// Variations", 1986).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rdmaemu::trace_tools {

// The most deletions and insertions that are searched for. Memory grows with the square of this:
// 4000 take 32 MiB. Beyond it, what the ends of the sequences do not share counts as replaced.
inline constexpr size_t kMaxEdits = 4000;

struct Step {
  enum class Kind { kSame, kOnlyA, kOnlyB };
  Kind kind;
  size_t a, b;  // positions; of kOnlyA `b` is where the element would be, and the other way round
  bool operator==(const Step&) const = default;
};

struct Alignment {
  std::vector<Step> steps;
  bool is_exact = true;  // false: kMaxEdits was reached
};

// Equal numbers are equal elements.
Alignment Align(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace rdmaemu::trace_tools
