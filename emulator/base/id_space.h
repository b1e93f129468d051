// The range of 32-bit numbers that a host assigns to its clients' objects: handles, channels, ids,
// devices, segments. A host process uses all numbers. Each of several hosts in one program uses its
// own part, so that a number identifies its host.
#pragma once

#include <cstdint>

namespace rdmaemu {

struct IdSpace {
  static constexpr uint32_t kPartBits = 28;  // low bits of a number; the bits above select the part
  static constexpr uint32_t kMaxParts = 8;

  uint32_t prefix = 0;
  uint32_t bits = 32;  // low bits of a number, below the prefix

  // Returns part `part`, from 0 to kMaxParts - 1.
  static constexpr IdSpace Part(uint32_t part) { return {part << kPartBits, kPartBits}; }
  // Returns the part of a number.
  static constexpr uint32_t PartOf(uint32_t number) {
    return number >> kPartBits & (kMaxParts - 1);
  }

  constexpr uint32_t last() const { return bits == 32 ? UINT32_MAX : (uint32_t{1} << bits) - 1; }
  // Returns the n-th number. The numbers repeat after the last one.
  constexpr uint32_t At(uint32_t n) const { return prefix | (n & last()); }
};

}  // namespace rdmaemu
