// Deadlines by key, one per key. The earliest fires first. Equal deadlines fire in the order of
// their keys, so that the same deadlines always fire in the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/base/spare_nodes.h"
#include "emulator/base/time.h"

namespace rdmaemu {

// A binary heap, because most deadlines are later than all others when they are set, and are soon
// cancelled. At the end of a heap, neither moves another element.
template <class Key>
class TimerQueue {
 public:
  // Sets or changes the key's deadline.
  void Arm(const Key& key, Time deadline) {
    auto it = places_.find(key);
    if (it == places_.end()) {
      it = spare_.Insert(places_, key, heap_.size());
      heap_.push_back({deadline, &*it});
    } else {
      heap_[it->second].deadline = deadline;
    }
    Settle(it->second);
  }
  void Cancel(const Key& key) {
    const auto it = places_.find(key);
    if (it != places_.end()) Remove(it);
  }
  std::optional<Time> Next() const {
    if (heap_.empty()) return std::nullopt;
    return heap_.front().deadline;
  }
  // Returns the earliest deadline and its key.
  std::optional<std::pair<Time, Key>> First() const {
    if (heap_.empty()) return std::nullopt;
    return std::pair(heap_.front().deadline, heap_.front().place->first);
  }
  // Removes and returns one key whose deadline is not after `now`.
  std::optional<Key> PopExpired(Time now) {
    if (heap_.empty() || heap_.front().deadline > now) return std::nullopt;
    const Key key = heap_.front().place->first;
    Cancel(key);
    return key;
  }

 private:
  using Places = std::unordered_map<Key, size_t>;  // into the heap; looked up, never iterated
  struct Entry {
    Time deadline;
    typename Places::value_type* place;

    bool operator<(const Entry& other) const {
      return deadline != other.deadline ? deadline < other.deadline
                                        : place->first < other.place->first;
    }
  };

  void Remove(typename Places::iterator it) {
    const size_t at = it->second;
    spare_.Erase(places_, it);
    const Entry last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    Put(at, last);
    Settle(at);
  }
  void Put(size_t at, const Entry& entry) {
    heap_[at] = entry;
    entry.place->second = at;
  }
  // Moves the entry to where its deadline belongs.
  void Settle(size_t at) {
    const Entry entry = heap_[at];
    for (; at > 0 && entry < heap_[(at - 1) / 2]; at = (at - 1) / 2) Put(at, heap_[(at - 1) / 2]);
    for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) child++;
      if (!(heap_[child] < entry)) break;
      Put(at, heap_[child]);
      at = child;
    }
    Put(at, entry);
  }

  Places places_;
  SpareNodes<Places> spare_;
  std::vector<Entry> heap_;
};

}  // namespace rdmaemu
