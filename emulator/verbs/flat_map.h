// A hash table for the data path. Keys are 32-bit numbers below 2^32 - 1 in one flat array, with
// linear probing and without tombstones. The order of keys has no effect, because there is no
// iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rdmaemu {

template <class Value>
class FlatMap {
 public:
  FlatMap() : cells_(kLeastCells) {}

  // Returns nullptr when the key is missing. The pointer is valid until the next Insert or Erase.
  Value* Find(uint32_t key) {
    for (size_t i = Home(key);; i = (i + 1) & mask()) {
      if (cells_[i].stored == key + 1) return &cells_[i].value;
      if (cells_[i].stored == 0) return nullptr;
    }
  }
  // The key must be missing.
  void Insert(uint32_t key, Value value) {
    if ((size_ + 1) * 2 > cells_.size()) Grow();
    Place(key, std::move(value));
    size_++;
  }
  void Erase(uint32_t key) {
    size_t hole = Home(key);
    while (cells_[hole].stored != key + 1) {
      if (cells_[hole].stored == 0) return;
      hole = (hole + 1) & mask();
    }
    // Moves back the entries that probed past the hole, so that no search ends early.
    for (size_t i = (hole + 1) & mask(); cells_[i].stored != 0; i = (i + 1) & mask()) {
      const size_t home = Home(cells_[i].stored - 1);
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      cells_[hole] = std::move(cells_[i]);
      hole = i;
    }
    cells_[hole] = Cell{};
    size_--;
  }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kLeastCells = 64;
  struct Cell {
    uint32_t stored = 0;  // key + 1; 0: empty
    Value value{};
  };
  size_t mask() const { return cells_.size() - 1; }
  size_t Home(uint32_t key) const { return (key * 0x9E3779B1u >> 7) & mask(); }
  void Place(uint32_t key, Value value) {
    size_t i = Home(key);
    while (cells_[i].stored != 0) i = (i + 1) & mask();
    cells_[i] = {key + 1, std::move(value)};
  }
  void Grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    for (Cell& cell : old) {
      if (cell.stored != 0) Place(cell.stored - 1, std::move(cell.value));
    }
  }

  std::vector<Cell> cells_;
  size_t size_ = 0;
};

}  // namespace rdmaemu
