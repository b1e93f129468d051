// Memory that the test and its peer process share at the same address. The test itself can
// therefore fill and compare the bytes of both sides. Guard bytes surround every buffer.
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

// Maps the arena. Must run before any peer process starts. Returns the descriptor of the arena's
// memory. A process that was executed anew passes this descriptor to MapArenaOf to map the same
// memory.
int MapArena();
void MapArenaOf(int memory_fd);
// Discards all buffers. Each test starts with it.
void ResetArena();
// Returns a buffer of `size` bytes (0 is allowed) that starts `misalignment` bytes after a 64-byte
// boundary.
Buffer Allocate(size_t size, size_t misalignment = 0);
// Returns whether the guards of all buffers are intact. False does not name the buffer: compare the
// buffers after it.
bool GuardsIntact();

// Fills the bytes with a pattern that depends on position and seed, so that a shifted or swapped
// packet is detected.
void FillPattern(std::span<uint8_t> bytes, uint32_t seed);
// Returns the offset of the first byte that differs from the pattern, -1 when all bytes match.
ptrdiff_t FirstDifference(std::span<const uint8_t> bytes, uint32_t seed, size_t pattern_offset = 0);

}  // namespace rdma_contract
