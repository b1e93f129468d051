// Conversion of big-endian numbers of the wire (1 to 8 bytes, any address) to and from host
// integers. Callers must check that the bytes exist.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmaemu::wire {

template <size_t kBytes>
constexpr uint64_t LoadBig(const std::byte* from) {
  static_assert(kBytes >= 1 && kBytes <= 8);
  uint64_t value = 0;
  for (size_t i = 0; i < kBytes; ++i) value = value << 8 | static_cast<uint8_t>(from[i]);
  return value;
}

// Keeps the low kBytes bytes of `value`.
template <size_t kBytes>
constexpr void StoreBig(std::byte* to, uint64_t value) {
  static_assert(kBytes >= 1 && kBytes <= 8);
  for (size_t i = 0; i < kBytes; ++i) to[i] = static_cast<std::byte>(value >> 8 * (kBytes - 1 - i));
}

}  // namespace rdmaemu::wire
