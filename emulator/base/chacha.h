// The ChaCha20 block function (RFC 8439, 2.3). Nobody can predict a block of 64 bytes without the
// key, not even from many other blocks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rdmaemu {

using ChaChaKey = std::array<uint32_t, 8>;
using ChaChaBlock = std::array<uint32_t, 16>;

inline ChaChaBlock ChaCha20(const ChaChaKey& key, uint32_t counter,
                            const std::array<uint32_t, 3>& nonce) {
  constexpr int kDoubleRounds = 10;
  // A row of the matrix. The four quarter rounds of its columns are executed together.
  using Row [[gnu::vector_size(16)]] = uint32_t;
  const Row start[] = {{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574},  // the constants
                       {key[0], key[1], key[2], key[3]},
                       {key[4], key[5], key[6], key[7]},
                       {counter, nonce[0], nonce[1], nonce[2]}};
  Row a = start[0], b = start[1], c = start[2], d = start[3];
  const auto rotl = [](Row x, int bits) { return x << bits | x >> (32 - bits); };
  const auto quarter_rounds = [&] {
    a += b, d = rotl(d ^ a, 16);
    c += d, b = rotl(b ^ c, 12);
    a += b, d = rotl(d ^ a, 8);
    c += d, b = rotl(b ^ c, 7);
  };
  for (int i = 0; i < kDoubleRounds; i++) {
    quarter_rounds();
    // Moves each diagonal to a column.
    b = __builtin_shufflevector(b, b, 1, 2, 3, 0);
    c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
    d = __builtin_shufflevector(d, d, 3, 0, 1, 2);
    quarter_rounds();
    b = __builtin_shufflevector(b, b, 3, 0, 1, 2);
    c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
    d = __builtin_shufflevector(d, d, 1, 2, 3, 0);
  }
  const Row rows[] = {a + start[0], b + start[1], c + start[2], d + start[3]};
  return std::bit_cast<ChaChaBlock>(rows);
}

}  // namespace rdmaemu
