#include "emulator/verbs/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/verbs/flat_map.h"
#include "emulator/verbs/testing/fakes.h"

namespace rdmaemu {
namespace {

TEST(Arena, CutsAlignedStretchesFromFewSegments) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const Span a = *arena.Allocate(100), b = *arena.Allocate(1);
  EXPECT_EQ(memory.live_segments(), 1u);
  EXPECT_EQ(a.segment, b.segment);
  EXPECT_EQ(b.offset % Arena::kAlignment, 0u);
  EXPECT_GE(b.offset, a.offset + 100);
  EXPECT_EQ(*arena.SegmentLength(a.segment), Arena::kSegmentBytes);
  EXPECT_EQ(arena.SegmentLength(SegmentId{99}), Fail(EINVAL));
}

TEST(Arena, WhatIsHandedOutAgainIsZeroAsFarAsAskedFor) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  Span span = *arena.Allocate(4096);
  // Fills the span, and allocates it again. Returns how many of its bytes are 0.
  const auto zeros_in_next = [&](auto... wanted) {
    const std::byte* const before = span.bytes;
    std::memset(span.bytes, 0xff, span.length);
    arena.Free(span);
    span = *arena.Allocate(wanted...);
    EXPECT_EQ(span.bytes, before);
    return std::count(span.bytes, span.bytes + span.length, std::byte{0});
  };
  EXPECT_EQ(zeros_in_next(8192), 8192) << "all of it by default";
  EXPECT_EQ(zeros_in_next(8192, 100), 100);
  EXPECT_EQ(zeros_in_next(8192, 0), 0);
}

TEST(Arena, NeighboursMergeWhenFreedInAnyOrder) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const size_t third = Arena::kSegmentBytes / 4;
  const Span a = *arena.Allocate(third), b = *arena.Allocate(third), c = *arena.Allocate(third);
  const Span d = *arena.Allocate(third);
  arena.Free(a);
  arena.Free(c);
  arena.Free(d);
  arena.Free(b);
  ASSERT_TRUE(arena.Allocate(Arena::kSegmentBytes));
  EXPECT_EQ(memory.live_segments(), 1u);
}

TEST(Arena, OneEmptySegmentIsKeptSoThatAQueueInTurnsNeedsNoNewOne) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const Span large = *arena.Allocate(3 * Arena::kSegmentBytes);
  arena.Free(large);
  EXPECT_EQ(arena.Allocate(3 * Arena::kSegmentBytes)->segment, large.segment);
  const Span second = *arena.Allocate(5 * Arena::kSegmentBytes);
  arena.Free(large);
  arena.Free(second);
  EXPECT_EQ(memory.live_segments(), 1u);
  EXPECT_EQ(arena.Allocate(1)->segment, second.segment) << "the larger one";
}

TEST(Arena, HugeSegmentsGoBackAndLimitsHold) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const Span huge = *arena.Allocate(Arena::kMaxSpareBytes + 1);
  arena.Free(huge);
  EXPECT_EQ(memory.live_segments(), 0u);
  EXPECT_EQ(arena.total_bytes(), 0u);
  EXPECT_EQ(arena.Allocate(Arena::kMaxSpanBytes + 1).error().code, ENOMEM);
  memory.most_segments = 0;
  EXPECT_EQ(arena.Allocate(1).error().code, ENOMEM);
}

TEST(Arena, StretchesOfSeveralProcessesAreNotUsedAgainAtOnce) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const Span kept = *arena.Allocate(64);  // so that the segment stays
  const auto next = [&arena](size_t bytes) {
    const Span span = *arena.Allocate(bytes);
    arena.Free(span);
    return span.bytes;
  };
  std::byte* const first = next(4096);
  EXPECT_EQ(next(4096), first);
  arena.SetShared(true);
  EXPECT_EQ(next(4096), first);
  for (size_t freed = 2 * 4096; freed <= Arena::kMostKeptBytes; freed += 4096) {
    ASSERT_NE(next(4096), first) << freed;
  }
  (void)next(4096);
  EXPECT_EQ(next(4096), first);
  arena.SetShared(false);
  EXPECT_EQ(next(4096), next(4096));
  arena.SetShared(true);
  const size_t segments = memory.live_segments();
  (void)next(Arena::kMostKeptBytes + 1);
  EXPECT_EQ(memory.live_segments(), segments) << "the limit holds for a single one, too";
  arena.Free(kept);
}

// A program maps a segment until it ends, and would keep the pages of every queue it ever used.
TEST(Arena, LongStretchesGiveTheirPagesBack) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  const Span kept = *arena.Allocate(64);
  const Span shorter = *arena.Allocate(Arena::kDiscardBytes - Arena::kAlignment);
  arena.Free(shorter);
  EXPECT_EQ(memory.discarded_bytes, 0u);
  const Span longer = *arena.Allocate(Arena::kDiscardBytes);
  memory.discarded_bytes = 0;
  std::memset(longer.bytes, 0xff, longer.length);
  arena.Free(longer);
  EXPECT_EQ(memory.discarded_bytes, Arena::kDiscardBytes);
  longer.bytes[5] = std::byte{1};  // written by a program that still has the span mapped
  const Span again = *arena.Allocate(Arena::kDiscardBytes);
  ASSERT_EQ(again.bytes, longer.bytes);
  EXPECT_EQ(again.bytes[5], std::byte{0});
  arena.Free(kept);
}

TEST(Arena, AGroupThatHasMuchHasFewSegments) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  for (int i = 0; i < 10000; i++) ASSERT_TRUE(arena.Allocate(10000));  // 95 MiB
  EXPECT_LE(memory.live_segments(), 9u);
}

// Queues of random sizes are created and destroyed. No two overlap, and all are zero. At the end
// one segment is left.
TEST(Arena, StretchesNeverOverlap) {
  testing::FakeSharedMemory memory;
  Arena arena(memory);
  Random random(11);
  std::vector<Span> held;
  for (int i = 0; i < 20000; i++) {
    if (held.size() < 300 && random.Below(2) == 0) {
      const Span span = *arena.Allocate(1 + random.Below(random.Below(20) == 0 ? 900000 : 9000));
      ASSERT_TRUE(std::all_of(span.bytes, span.bytes + span.length,
                              [](std::byte byte) { return byte == std::byte{0}; }));
      std::memset(span.bytes, 0xee, span.length);
      held.push_back(span);
    } else if (!held.empty()) {
      std::swap(held[random.Below(static_cast<uint32_t>(held.size()))], held.back());
      std::memset(held.back().bytes, 0x11, held.back().length);
      arena.Free(held.back());
      held.pop_back();
    }
  }
  for (const Span& span : held) {
    EXPECT_TRUE(std::all_of(span.bytes, span.bytes + span.length,
                            [](std::byte byte) { return byte == std::byte{0xee}; }));
    arena.Free(span);
  }
  EXPECT_EQ(memory.live_segments(), 1u);
}

TEST(FlatMap, ErasingKeepsWhatProbedPastTheHole) {
  FlatMap<uint32_t> map;
  for (uint32_t key = 1; key <= 5000; key++) map.Insert(key * 4096, key);
  for (uint32_t key = 1; key <= 5000; key += 2) map.Erase(key * 4096);
  map.Erase(3);  // not there
  EXPECT_EQ(map.size(), 2500u);
  for (uint32_t key = 1; key <= 5000; key++) {
    uint32_t* found = map.Find(key * 4096);
    ASSERT_EQ(found != nullptr, key % 2 == 0) << key;
    if (found != nullptr) {
      ASSERT_EQ(*found, key);
    }
  }
}

}  // namespace
}  // namespace rdmaemu
