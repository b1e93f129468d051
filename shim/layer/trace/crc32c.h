// CRC-32C (Castagnoli, RFC 3720 section 12.1), the hash of payloads in traces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rdmaemu::layer::trace {

namespace crc32c_table {
constexpr std::array<uint32_t, 256> Make() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82f63b78 : 0);
    table[i] = value;
  }
  return table;
}
inline constexpr std::array<uint32_t, 256> kTable = Make();
}  // namespace crc32c_table

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) inline uint32_t Crc32cBySse(uint32_t state, const uint8_t* bytes,
                                                              size_t count) {
  uint64_t wide = state;
  for (; count >= 8; bytes += 8, count -= 8) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; count > 0; bytes++, count--) narrow = _mm_crc32_u8(narrow, *bytes);
  return narrow;
}
#endif

// Returns the CRC of the bytes before, followed by `bytes`. `crc` is the CRC of the bytes before.
// 0: there are none.
inline uint32_t Crc32c(uint32_t crc, const void* bytes, size_t count) {
  uint32_t state = ~crc;
  const auto* at = static_cast<const uint8_t*>(bytes);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~Crc32cBySse(state, at, count);
#endif
  for (; count > 0; at++, count--) {
    state = state >> 8 ^ crc32c_table::kTable[(state ^ *at) & 0xff];
  }
  return ~state;
}

}  // namespace rdmaemu::layer::trace
