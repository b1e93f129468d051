// All 24-bit numbers in an unpredictable order, each once before any repeats. Queue pair numbers
// need both. A stranger cannot guess the next number, and a late packet for a destroyed queue pair
// finds no queue pair.
#pragma once

#include <cstdint>

#include "emulator/base/random.h"

namespace rdmaemu {

class ScrambledSequence {
 public:
  explicit ScrambledSequence(Random& random) {
    for (uint32_t& word : key_) word = random.Next32();
    next_ = random.Next24();
  }

  uint32_t Next() {
    const uint32_t number = Permute(next_);
    next_ = (next_ + 1) & kMask;
    return number;
  }

 private:
  static constexpr uint32_t kHalfBits = 12;
  static constexpr uint32_t kHalfMask = (1u << kHalfBits) - 1;
  static constexpr uint32_t kMask = (1u << (2 * kHalfBits)) - 1;
  static constexpr uint32_t kRounds = 4;

  // A Feistel network over two halves. It is a permutation for every round function.
  uint32_t Permute(uint32_t number) const {
    uint32_t left = number >> kHalfBits, right = number & kHalfMask;
    for (uint32_t round = 0; round < kRounds; round++) {
      const uint32_t mixed = left ^ (ChaCha20(key_, round, {right, 0, 0})[0] & kHalfMask);
      left = right;
      right = mixed;
    }
    return left << kHalfBits | right;
  }

  ChaChaKey key_;
  uint32_t next_;
};

}  // namespace rdmaemu
