#include "tools/trace/align.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rdmaemu::trace_tools {
namespace {

using Sequence = std::vector<uint32_t>;

size_t Edits(const Alignment& alignment) {
  return static_cast<size_t>(std::ranges::count_if(
      alignment.steps, [](const Step& step) { return step.kind != Step::Kind::kSame; }));
}

// Checks the rule of every alignment: the steps contain both sequences completely and in order, and
// elements of kSame steps are equal.
void ExpectWhole(const Sequence& a, const Sequence& b, const Alignment& alignment) {
  size_t at_a = 0, at_b = 0;
  for (const Step& step : alignment.steps) {
    if (step.kind != Step::Kind::kOnlyB) {
      ASSERT_EQ(step.a, at_a++);
    }
    if (step.kind != Step::Kind::kOnlyA) {
      ASSERT_EQ(step.b, at_b++);
    }
    if (step.kind == Step::Kind::kSame) {
      ASSERT_EQ(a[step.a], b[step.b]);
    }
  }
  EXPECT_EQ(at_a, a.size());
  EXPECT_EQ(at_b, b.size());
}

// Returns the fewest edits, from the table of all prefixes.
size_t FewestEdits(const Sequence& a, const Sequence& b) {
  std::vector<std::vector<size_t>> best(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); i++) {
    for (size_t j = 0; j <= b.size(); j++) {
      if (i == 0 || j == 0) {
        best[i][j] = i + j;
      } else if (a[i - 1] == b[j - 1]) {
        best[i][j] = best[i - 1][j - 1];
      } else {
        best[i][j] = 1 + std::min(best[i - 1][j], best[i][j - 1]);
      }
    }
  }
  return best[a.size()][b.size()];
}

TEST(AlignTest, FindsOneInsertionOneDeletionAndOneReplacement) {
  EXPECT_EQ(Edits(Align(Sequence{1, 2, 3}, Sequence{1, 2, 3})), 0u);
  const Sequence with_new = {1, 9, 2, 3};
  EXPECT_EQ(Align(Sequence{1, 2, 3}, with_new).steps[1], (Step{Step::Kind::kOnlyB, 1, 1}));
  EXPECT_EQ(Align(with_new, Sequence{1, 2, 3}).steps[1], (Step{Step::Kind::kOnlyA, 1, 1}));
  EXPECT_EQ(Edits(Align(Sequence{1, 2, 3}, Sequence{1, 9, 3})), 2u);
}

TEST(AlignTest, EmptySequencesAlign) {
  EXPECT_TRUE(Align({}, {}).steps.empty());
  EXPECT_EQ(Edits(Align({}, Sequence{1, 2})), 2u);
  EXPECT_EQ(Edits(Align(Sequence{1, 2}, {})), 2u);
}

TEST(AlignTest, RandomSequencesAlignWithTheFewestEdits) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; round++) {
    Sequence a(random() % 12), b(random() % 12);
    for (uint32_t& each : a) each = random() % 3;
    for (uint32_t& each : b) each = random() % 3;
    const Alignment alignment = Align(a, b);
    ExpectWhole(a, b, alignment);
    ASSERT_EQ(Edits(alignment), FewestEdits(a, b));
  }
}

TEST(AlignTest, AtTheLimitTheAlignmentIsExactAndBeyondItWhole) {
  for (const size_t extra : {size_t{0}, size_t{1}}) {
    // The sequences have only their ends in common.
    Sequence a(kMaxEdits / 2 + 2, 1), b(kMaxEdits / 2 + 2 + extra, 2);
    a.front() = b.front() = 7;
    a.back() = b.back() = 8;
    const Alignment alignment = Align(a, b);
    EXPECT_EQ(alignment.is_exact, extra == 0);
    ExpectWhole(a, b, alignment);
    EXPECT_EQ(Edits(alignment), kMaxEdits + extra);
  }
}

}  // namespace
}  // namespace rdmaemu::trace_tools
