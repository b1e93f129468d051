// Seeded random numbers: one generator a host, so that a seed repeats a run. The engine is the
// standard's, whose sequence is fixed by the standard; ranges are cut here because the
// distributions' are not.
#pragma once

#include <cstdint>
#include <random>

namespace rdmaemu {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Next64() { return engine_(); }
  uint32_t Next32() { return static_cast<uint32_t>(engine_() >> 32); }
  uint32_t Next24() { return static_cast<uint32_t>(engine_() >> 40); }
  // Uniform in [0, bound); bound must not be 0.
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(engine_()) * bound) >> 64);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace rdmaemu
