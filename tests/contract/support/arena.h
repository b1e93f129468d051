// Memory that the test and its peer process share at the same address, so that the test itself can
// fill and compare the bytes of both sides. Every buffer stands between guard bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdma_contract {

inline constexpr size_t kArenaBytes = size_t{96} << 20;
inline constexpr size_t kGuardBytes = 64;

struct Buffer {
  uint8_t* data = nullptr;
  size_t size = 0;
  std::span<uint8_t> bytes() const { return {data, size}; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data); }
};

// Maps the arena, before any peer process starts. Gives the descriptor of its memory, by which a
// process that was executed anew maps the same.
int MapArena();
void MapArenaOf(int memory_fd);
// Forgets all buffers; each test begins so.
void ResetArena();
// A buffer of `size` bytes (0 is fine) whose start is `misalignment` bytes after a 64-byte
// boundary.
Buffer Allocate(size_t size, size_t misalignment = 0);
// All guards of all buffers are as they were laid; false names no one: compare buffers after it.
bool GuardsIntact();

// Bytes that differ by position and by seed, so that a shifted or swapped packet shows.
void FillPattern(std::span<uint8_t> bytes, uint32_t seed);
// Offset of the first byte that is not the pattern's, -1 when all are.
ptrdiff_t FirstDifference(std::span<const uint8_t> bytes, uint32_t seed, size_t pattern_offset = 0);

}  // namespace rdma_contract
