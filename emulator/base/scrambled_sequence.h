// All numbers of 24 bits in an order that nobody foretells, none twice before all have come: what
// numbers of queue pairs must be, so that a stranger cannot guess the next, and a late packet of
// one that has gone finds nobody.
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

  // A Feistel network over two halves: a permutation, whatever its round function is.
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
