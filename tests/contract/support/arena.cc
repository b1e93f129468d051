#include "tests/contract/support/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace rdma_contract {
namespace {

constexpr uint8_t kGuardByte = 0xa5;
// Far below the addresses that the kernel gives to programs, libraries and stacks, and above
// AddressSanitizer's shadow memory. The address is free in every process.
void* const kArenaAddress = reinterpret_cast<void*>(uintptr_t{0x2000'0000'0000});

uint8_t* arena = nullptr;
size_t used = 0;
std::vector<Buffer> buffers;

// Returns one byte of the pattern: a multiplicative hash of the position.
uint8_t PatternByte(size_t position, uint32_t seed) {
  const uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15u + seed * 0xc2b2ae3d27d4eb4fu;
  return static_cast<uint8_t>(mixed >> 56 ^ mixed >> 24);
}

bool IsGuard(const uint8_t* bytes) {
  return std::all_of(bytes, bytes + kGuardBytes, [](uint8_t byte) { return byte == kGuardByte; });
}

}  // namespace

int MapArena() {
  const int memory_fd = memfd_create("arena", 0);
  if (memory_fd < 0 || ftruncate(memory_fd, kArenaBytes) != 0) abort();
  MapArenaOf(memory_fd);
  return memory_fd;
}

void MapArenaOf(int memory_fd) {
  void* mapped = mmap(kArenaAddress, kArenaBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED_NOREPLACE, memory_fd, 0);
  if (mapped != kArenaAddress) abort();
  arena = static_cast<uint8_t*>(mapped);
}

void ResetArena() {
  buffers.clear();
  used = 0;
}

Buffer Allocate(size_t size, size_t misalignment) {
  const size_t start = (used + kGuardBytes + 63) / 64 * 64 + misalignment;
  if (start + size + kGuardBytes > kArenaBytes) abort();
  memset(arena + start - kGuardBytes, kGuardByte, kGuardBytes);
  memset(arena + start, 0, size);
  memset(arena + start + size, kGuardByte, kGuardBytes);
  used = start + size + kGuardBytes;
  buffers.push_back({arena + start, size});
  return buffers.back();
}

bool GuardsIntact() {
  return std::all_of(buffers.begin(), buffers.end(), [](const Buffer& buffer) {
    return IsGuard(buffer.data - kGuardBytes) && IsGuard(buffer.data + buffer.size);
  });
}

void FillPattern(std::span<uint8_t> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = PatternByte(i, seed);
}

ptrdiff_t FirstDifference(std::span<const uint8_t> bytes, uint32_t seed, size_t pattern_offset) {
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != PatternByte(pattern_offset + i, seed)) return static_cast<ptrdiff_t>(i);
  return -1;
}

}  // namespace rdma_contract
