// Seeded random numbers. Each host has one generator, so that a seed repeats a run. The numbers
// become keys, queue pair numbers, communication ids and tokens. They come from a cipher, so that
// nobody can predict the next number from earlier ones. A host without a given seed uses 256 bits
// from the kernel. A seed of 64 bits is for runs that must repeat.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/base/chacha.h"

namespace rdmaemu {

struct RandomSeed {
  ChaChaKey key{};

  RandomSeed() = default;
  // Makes the short seed of tests and simulations.
  RandomSeed(uint64_t seed)  // NOLINT(google-explicit-constructor): a number is a seed
      : key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}
};

class Random {
 public:
  explicit Random(const RandomSeed& seed) : key_(seed.key) {}

  uint64_t Next64() {
    if (used_ == block_.size()) Refill();
    const uint64_t low = block_[used_];
    const uint64_t high = block_[used_ + 1];
    used_ += 2;
    return high << 32 | low;
  }
  uint32_t Next32() { return static_cast<uint32_t>(Next64() >> 32); }
  uint32_t Next24() { return static_cast<uint32_t>(Next64() >> 40); }
  // Returns a number that is uniform in [0, bound). `bound` must not be 0.
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(Next64()) * bound) >> 64);
  }

 private:
  void Refill() {
    block_ = ChaCha20(key_, static_cast<uint32_t>(blocks_),
                      {static_cast<uint32_t>(blocks_ >> 32), 0, 0});
    blocks_++;
    used_ = 0;
  }

  ChaChaKey key_;
  uint64_t blocks_ = 0;
  ChaChaBlock block_{};
  size_t used_ = std::tuple_size_v<ChaChaBlock>;
};

}  // namespace rdmaemu
