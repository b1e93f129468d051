// The memory of ibv_alloc_buf(3) that a process shares with its host, so that the host copies
// without a system call. The arena is one memfd, which the host makes and seals. Its first bytes
// are a BufferArena, the rest are buffers. The process maps the whole arena at one address.
//
// The process alone allocates. It shows the host by one bit which granules it shares. The host
// copies directly only where every bit is set. The host checks the bits, and trusts nothing else.
//
// Both sides exclude each other while the process takes granules back (for fork(2) or a free):
//  - The process makes `changes` odd, clears the bits, waits while `host_copies` is 1, changes its
//    mappings, and makes `changes` even.
//  - The host sets `host_copies` to 1 and reads `changes`. If the number is odd, the host takes
//    `host_copies` back and waits.
// Neither side waits for a stopped or hostile peer for long. A host that finds another number in
// `changes` after a copy repeats the copy.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmaemu {

struct BufferArena {
  static constexpr uint64_t kBytes = uint64_t{256} << 20;  // per process
  static constexpr uint64_t kGranuleBytes = 4096;
  static constexpr uint64_t kGranules = kBytes / kGranuleBytes;
  // Whole pages, whatever page size Linux has.
  static constexpr uint64_t kControlBytes = 65536;

  alignas(64) uint32_t host_copies;  // the host writes it
  alignas(64) uint32_t changes;      // the process writes it, as all below
  // Buffers that are ordinary memory because a limit of the arena was reached.
  uint32_t ordinary_buffers;
  alignas(64) uint64_t shared[kGranules / 64];

  // The process calls these two.
  void Show(uint64_t first, uint64_t count) {
    ForEachWord(first, count, [](std::atomic_ref<uint64_t> word, uint64_t mask) {
      word.fetch_or(mask, std::memory_order_release);
      return true;
    });
  }
  void Hide(uint64_t first, uint64_t count) {
    ForEachWord(first, count, [](std::atomic_ref<uint64_t> word, uint64_t mask) {
      word.fetch_and(~mask, std::memory_order_seq_cst);
      return true;
    });
  }
  // The host calls these two. The granules must be within the arena.
  bool AllShared(uint64_t first, uint64_t count) {
    return ForEachWord(first, count, [](std::atomic_ref<uint64_t> word, uint64_t mask) {
      return (word.load(std::memory_order_seq_cst) & mask) == mask;
    });
  }
  bool NoneShared(uint64_t first, uint64_t count) {
    return ForEachWord(first, count, [](std::atomic_ref<uint64_t> word, uint64_t mask) {
      return (word.load(std::memory_order_seq_cst) & mask) == 0;
    });
  }

 private:
  // Calls `act` with each word and the bits of these granules in it, until `act` returns false.
  template <class Act>
  bool ForEachWord(uint64_t first, uint64_t count, Act act) {
    for (uint64_t at = first; at < first + count;) {
      const uint64_t bit = at % 64, here = std::min(64 - bit, first + count - at);
      const uint64_t mask = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << bit;
      if (!act(std::atomic_ref(shared[at / 64]), mask)) return false;
      at += here;
    }
    return true;
  }
};
static_assert(sizeof(BufferArena) <= BufferArena::kControlBytes);

}  // namespace rdmaemu
