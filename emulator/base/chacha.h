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
  const ChaChaBlock start = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574,  // the constants
                             key[0],     key[1],     key[2],     key[3],     key[4],   key[5],
                             key[6],     key[7],     counter,    nonce[0],   nonce[1], nonce[2]};
  ChaChaBlock x = start;
  const auto quarter_round = [&x](size_t a, size_t b, size_t c, size_t d) {
    x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 16);
    x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 8);
    x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 7);
  };
  for (int i = 0; i < kDoubleRounds; i++) {
    for (size_t column = 0; column < 4; column++) {
      quarter_round(column, 4 + column, 8 + column, 12 + column);
    }
    for (size_t diagonal = 0; diagonal < 4; diagonal++) {
      quarter_round(diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4,
                    12 + (diagonal + 3) % 4);
    }
  }
  for (size_t i = 0; i < x.size(); i++) x[i] += start[i];
  return x;
}

}  // namespace rdmaemu
