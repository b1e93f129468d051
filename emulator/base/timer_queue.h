// Deadlines by key, one per key. The earliest fires first. Equal deadlines fire in the order of
// their keys, so that the same deadlines always fire in the same order.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "emulator/base/time.h"

namespace rdmaemu {

template <class Key>
class TimerQueue {
 public:
  // Sets or changes the key's deadline.
  void Arm(const Key& key, Time deadline) {
    auto [it, added] = deadlines_.try_emplace(key, deadline);
    if (!added) {
      if (it->second == deadline) return;
      order_.erase({it->second, key});
      it->second = deadline;
    }
    order_.insert({deadline, key});
  }
  void Cancel(const Key& key) {
    auto it = deadlines_.find(key);
    if (it == deadlines_.end()) return;
    order_.erase({it->second, key});
    deadlines_.erase(it);
  }
  std::optional<Time> Next() const {
    if (order_.empty()) return std::nullopt;
    return order_.begin()->first;
  }
  // Returns the earliest deadline and its key.
  std::optional<std::pair<Time, Key>> First() const {
    if (order_.empty()) return std::nullopt;
    return *order_.begin();
  }
  // Removes and returns one key whose deadline is not after `now`.
  std::optional<Key> PopExpired(Time now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    Key key = order_.begin()->second;
    order_.erase(order_.begin());
    deadlines_.erase(key);
    return key;
  }

 private:
  std::unordered_map<Key, Time> deadlines_;  // looked up, never iterated
  std::set<std::pair<Time, Key>> order_;
};

}  // namespace rdmaemu
