#include "tools/trace/align.h"

#include <algorithm>

namespace rdmaemu::trace_tools {
namespace {

using Sequence = std::span<const uint32_t>;

// Stores the furthest position in `a` on each diagonal, for each number of edits. On diagonal k,
// the position in `a` minus the position in `b` is k.
class FurthestPaths {
 public:
  // Returns the position after `edits` edits. The diagonals are -edits, -edits + 2, ... edits.
  int32_t& At(size_t edits, int64_t diagonal) {
    return rows_[edits][static_cast<size_t>((diagonal + static_cast<int64_t>(edits)) / 2)];
  }
  void AddRow() { rows_.emplace_back(rows_.size() + 1); }
  // Returns true when the best step to this diagonal is an insertion (from diagonal + 1).
  bool IsInsertion(size_t edits, int64_t diagonal) {
    const auto most = static_cast<int64_t>(edits);
    if (diagonal == -most) return true;
    if (diagonal == most) return false;
    return At(edits - 1, diagonal - 1) < At(edits - 1, diagonal + 1);
  }

 private:
  std::vector<std::vector<int32_t>> rows_;
};

// Appends the steps of the path to the ends of both sequences. The last step is first.
void WalkBack(Sequence a, Sequence b, size_t edits, FurthestPaths& paths,
              std::vector<Step>& backwards) {
  size_t x = a.size(), y = b.size();
  for (; edits > 0; edits--) {
    const int64_t diagonal = static_cast<int64_t>(x) - static_cast<int64_t>(y);
    const bool inserts = paths.IsInsertion(edits, diagonal);
    const int64_t before = inserts ? diagonal + 1 : diagonal - 1;
    const auto from_x = static_cast<size_t>(paths.At(edits - 1, before));
    const size_t start_x = inserts ? from_x : from_x + 1;
    while (x > start_x) {
      x--, y--;
      backwards.push_back({Step::Kind::kSame, x, y});
    }
    if (inserts) {
      y--;
      backwards.push_back({Step::Kind::kOnlyB, x, y});
    } else {
      x--;
      backwards.push_back({Step::Kind::kOnlyA, x, y});
    }
  }
  while (x > 0) {
    x--, y--;
    backwards.push_back({Step::Kind::kSame, x, y});
  }
}

// Finds the shortest path. Returns false when the path needs more than kMaxEdits edits.
bool FindPath(Sequence a, Sequence b, std::vector<Step>& backwards) {
  FurthestPaths paths;
  const auto size_a = static_cast<int64_t>(a.size()), size_b = static_cast<int64_t>(b.size());
  for (size_t edits = 0; edits <= kMaxEdits; edits++) {
    paths.AddRow();
    const auto most = static_cast<int64_t>(edits);
    for (int64_t diagonal = -most; diagonal <= most; diagonal += 2) {
      int64_t x = 0;
      if (edits > 0) {
        x = paths.IsInsertion(edits, diagonal) ? paths.At(edits - 1, diagonal + 1)
                                               : paths.At(edits - 1, diagonal - 1) + 1;
      }
      // Positions outside the sequences do not advance, because no path leads back into the
      // sequences.
      while (x < size_a && x - diagonal < size_b && x - diagonal >= 0 &&
             a[static_cast<size_t>(x)] == b[static_cast<size_t>(x - diagonal)]) {
        x++;
      }
      paths.At(edits, diagonal) = static_cast<int32_t>(x);
      if (x >= size_a && x - diagonal >= size_b && diagonal == size_a - size_b) {
        WalkBack(a, b, edits, paths, backwards);
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Alignment Align(Sequence a, Sequence b) {
  Alignment alignment;
  size_t head = 0, tail = 0;
  const size_t shorter = std::min(a.size(), b.size());
  while (head < shorter && a[head] == b[head]) head++;
  while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) tail++;
  const Sequence middle_a = a.subspan(head, a.size() - head - tail);
  const Sequence middle_b = b.subspan(head, b.size() - head - tail);

  for (size_t i = 0; i < head; i++) alignment.steps.push_back({Step::Kind::kSame, i, i});
  std::vector<Step> backwards;
  alignment.is_exact = FindPath(middle_a, middle_b, backwards);
  if (!alignment.is_exact) {
    for (size_t i = middle_b.size(); i-- > 0;) {
      backwards.push_back({Step::Kind::kOnlyB, middle_a.size(), i});
    }
    for (size_t i = middle_a.size(); i-- > 0;) backwards.push_back({Step::Kind::kOnlyA, i, 0});
  }
  for (auto step = backwards.rbegin(); step != backwards.rend(); step++) {
    alignment.steps.push_back({step->kind, step->a + head, step->b + head});
  }
  for (size_t i = tail; i > 0; i--) {
    alignment.steps.push_back({Step::Kind::kSame, a.size() - i, b.size() - i});
  }
  return alignment;
}

}  // namespace rdmaemu::trace_tools
