// Which of all 32-bit numbers a host gives to its clients: handles, channels, ids, devices,
// segments. A host process has them all; hosts that one program uses side by side have a part each,
// so that a number tells whose it is.
#pragma once

#include <cstdint>

namespace rdmaemu {

struct IdSpace {
  static constexpr uint32_t kPartBits = 28;  // of a number; above them stands the part's
  static constexpr uint32_t kMaxParts = 8;

  uint32_t prefix = 0;
  uint32_t bits = 32;  // of a number, below the prefix

  // The part-th of kMaxParts.
  static constexpr IdSpace Part(uint32_t part) { return {part << kPartBits, kPartBits}; }
  // Of a number of such a part: which one.
  static constexpr uint32_t PartOf(uint32_t number) {
    return number >> kPartBits & (kMaxParts - 1);
  }

  constexpr uint32_t last() const { return bits == 32 ? UINT32_MAX : (uint32_t{1} << bits) - 1; }
  // The n-th number; after the last one they come again.
  constexpr uint32_t At(uint32_t n) const { return prefix | (n & last()); }
};

}  // namespace rdmaemu
