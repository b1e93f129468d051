// Random numbers: they are those of the standard cipher, a seed repeats them, and strangers cannot
// guess them.
#include "emulator/base/random.h"

#include <gtest/gtest.h>

#include <vector>

#include "emulator/base/scrambled_sequence.h"

namespace rdmaemu {
namespace {

TEST(ChaCha, GivesTheVectorOfRfc8439) {  // 2.3.2
  ChaChaKey key;
  for (uint32_t i = 0; i < key.size(); i++) key[i] = 0x03020100 + i * 0x04040404;
  const ChaChaBlock expected = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3,
                                0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
                                0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  EXPECT_EQ(ChaCha20(key, 1, {0x09000000, 0x4a000000, 0}), expected);
}

TEST(Random, ASeedRepeatsItsNumbersAndAnotherDoesNot) {
  Random first(7), again(7), other(8);
  bool differs = false;
  for (int i = 0; i < 1000; i++) {
    const uint64_t number = first.Next64();
    EXPECT_EQ(number, again.Next64());
    differs |= number != other.Next64();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, EveryWordOfASeedCounts) {
  for (size_t word = 0; word < ChaChaKey{}.size(); word++) {
    RandomSeed seed;
    seed.key[word] = 1;
    EXPECT_NE(Random(seed).Next64(), Random(0).Next64()) << word;
  }
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(1);
  std::vector<int> seen(10);
  for (int i = 0; i < 1000; i++) seen.at(random.Below(10))++;
  for (const int count : seen) EXPECT_GT(count, 50);
}

TEST(ScrambledSequence, GivesNoNumberTwiceInARow) {
  Random random(3);
  ScrambledSequence sequence(random);
  std::vector<bool> seen(1u << 24);
  for (int i = 0; i < 20'000; i++) {
    const uint32_t number = sequence.Next();
    ASSERT_FALSE(seen.at(number)) << i;
    seen[number] = true;
  }
}

TEST(ScrambledSequence, NeighboursDoNotTellTheNext) {
  Random random(4);
  ScrambledSequence sequence(random);
  uint32_t last = sequence.Next(), small_steps = 0;
  for (int i = 0; i < 1000; i++) {
    const uint32_t number = sequence.Next();
    if (((number - last) & 0xffffff) < 4096) small_steps++;
    last = number;
  }
  EXPECT_LT(small_steps, 10u);
}

}  // namespace
}  // namespace rdmaemu
