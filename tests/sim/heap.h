// Buffers inside a process's memory, with unowned bytes between them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "emulator/base/random.h"

namespace rdmaemu::sim {

struct Piece {
  uint64_t offset = 0;  // in the process's memory
  uint32_t length = 0;  // bytes
};

class Heap {
 public:
  Heap(uint64_t begin, uint64_t end, Random& random) : random_(random) {
    free_[begin] = end - begin;
  }

  // Returns nullopt when no space is left.
  std::optional<Piece> Take(uint32_t length) {
    const uint64_t need = uint64_t{length} + 1 + random_.Below(kMostBetween);
    // Starts at a random position, so that neighbours differ.
    const uint64_t from =
        free_.empty() ? 0 : random_.Below(UINT32_MAX) % (free_.rbegin()->first + 1);
    auto it = free_.lower_bound(from);
    for (size_t looked = 0; looked < free_.size(); looked++, ++it) {
      if (it == free_.end()) it = free_.begin();
      if (it->second >= need) return Cut(it, length, need);
    }
    return std::nullopt;
  }
  void Give(const Piece& piece) {
    const auto taken = taken_.find(piece.offset);
    if (taken == taken_.end()) return;
    auto it = free_.emplace(piece.offset, taken->second).first;
    taken_.erase(taken);
    if (const auto next = std::next(it);
        next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it == free_.begin()) return;
    if (const auto before = std::prev(it); before->first + before->second == it->first) {
      before->second += it->second;
      free_.erase(it);
    }
  }

 private:
  static constexpr uint32_t kMostBetween = 24;

  Piece Cut(std::map<uint64_t, uint64_t>::iterator it, uint32_t length, uint64_t need) {
    const uint64_t offset = it->first, rest = it->second - need;
    free_.erase(it);
    if (rest > 0) free_[offset + need] = rest;
    taken_[offset] = need;
    return {offset, length};
  }

  Random& random_;
  std::map<uint64_t, uint64_t> free_;   // offset, length; never adjacent
  std::map<uint64_t, uint64_t> taken_;  // offset, length including the gap
};

}  // namespace rdmaemu::sim
