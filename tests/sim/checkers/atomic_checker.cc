#include "tests/sim/checkers/atomic_checker.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <utility>

namespace rdmaemu::sim {

AtomicChecker::Word AtomicChecker::Open(std::string name) {
  words_.push_back({std::move(name), {}, 0});
  return static_cast<Word>(words_.size() - 1);
}

void AtomicChecker::Complain(const State& state, const std::string& what) {
  verdict_.Complain("atomics", state.name + ": " + what);
}

uint64_t AtomicChecker::Add(Word word, Time posted, uint64_t bit) {
  std::vector<Operation>& all = words_.at(word).operations;
  all.push_back({true, bit, 0, posted, {}, {}});
  return all.size() - 1;
}

uint64_t AtomicChecker::Swap(Word word, Time posted, uint64_t compare, uint64_t swap) {
  std::vector<Operation>& all = words_.at(word).operations;
  all.push_back({false, swap, compare, posted, {}, {}});
  return all.size() - 1;
}

void AtomicChecker::Ended(Word word, uint64_t operation, Time now, uint64_t original) {
  State& state = words_.at(word);
  Operation& ended = state.operations.at(operation);
  ended.ended = now;
  ended.original = original;
  state.last_seen = original;
  if (ended.is_add) {
    state.last_seen += ended.operand;
  } else if (original == ended.compare) {
    state.last_seen = ended.operand;
  }
}

void AtomicChecker::Finish(Word word, uint64_t value) {
  const State& state = words_.at(word);
  if (state.operations.empty()) {
    if (value != 0) Complain(state, "nobody changed it, and it holds " + std::to_string(value));
  } else if (state.operations.front().is_add) {
    FinishAdds(state, value);
  } else {
    FinishSwaps(state, value);
  }
}

// A value is the set of the additions before it. Each returned set must contain the previous one.
void AtomicChecker::FinishAdds(const State& state, uint64_t value) {
  uint64_t posted = 0;
  std::vector<const Operation*> done;
  for (const Operation& operation : state.operations) {
    posted |= operation.operand;
    if (operation.original) done.push_back(&operation);
  }
  std::ranges::sort(done, {}, [](const Operation* o) { return std::popcount(*o->original); });
  uint64_t before = 0;
  for (const Operation* operation : done) {
    const uint64_t original = *operation->original;
    if ((original & ~posted) != 0) Complain(state, "an addition happened that nobody posted");
    if ((original & operation->operand) != 0) Complain(state, "an addition happened twice");
    if ((before & ~original) != 0) Complain(state, "two additions did not see each other");
    before = original | operation->operand;
  }
  if ((before & ~value) != 0 || (value & ~posted) != 0) {
    Complain(state, "its value " + std::to_string(value) + " is not the sum of the additions");
  }
  for (const Operation* a : done) {
    for (const Operation* b : done) {
      if (a->ended < b->posted && (*b->original & a->operand) == 0) {
        Complain(state, "an addition was not seen by one that was posted after its end");
      }
    }
  }
}

// Only one operation writes each value, so the values form one chain from 0.
void AtomicChecker::FinishSwaps(const State& state, uint64_t value) {
  std::map<uint64_t, uint64_t> next;  // of operations that are known to have swapped
  std::map<uint64_t, std::vector<uint64_t>> maybe;
  for (const Operation& operation : state.operations) {
    if (!operation.original) {
      maybe[operation.compare].push_back(operation.operand);
    } else if (*operation.original == operation.compare &&
               !next.emplace(operation.compare, operation.operand).second) {
      return Complain(state, "two swaps found the same value " + std::to_string(operation.compare));
    }
  }
  // Follows the chain. If no known operation swapped a value, an operation with an unknown result
  // must have swapped it. The checker takes one whose value was seen by another operation or is the
  // last value.
  std::map<uint64_t, size_t> place;
  uint64_t at = 0;
  for (size_t step = 0;; step++) {
    place[at] = step;
    if (const auto known = next.find(at); known != next.end()) {
      at = known->second;
      continue;
    }
    const auto candidates = maybe.find(at);
    if (candidates == maybe.end()) break;
    // Each value is written once, so the recursion ends.
    const std::function<bool(uint64_t)> is_seen = [&](uint64_t candidate) {
      if (candidate == value || next.contains(candidate)) return true;
      const auto seen = [&](const Operation& o) { return o.original == candidate; };
      if (std::ranges::any_of(state.operations, seen)) return true;
      const auto further = maybe.find(candidate);
      return further != maybe.end() && std::ranges::any_of(further->second, is_seen);
    };
    const auto taken = std::ranges::find_if(candidates->second, is_seen);
    if (taken == candidates->second.end()) break;
    at = *taken;
  }
  if (at != value) {
    return Complain(state, "it holds " + std::to_string(value) + ", and the swaps lead to " +
                               std::to_string(at));
  }
  const auto after = [&](const Operation& operation) {
    return *operation.original == operation.compare ? operation.operand : *operation.original;
  };
  for (const Operation& operation : state.operations) {
    if (!operation.original) continue;
    if (!place.contains(*operation.original)) {
      return Complain(state, "a swap found " + std::to_string(*operation.original) +
                                 ", which the word never held");
    }
    for (const Operation& later : state.operations) {
      if (!later.original || operation.ended >= later.posted) continue;
      if (place.contains(*later.original) && place[*later.original] < place[after(operation)]) {
        Complain(state, "a swap found a value that was older than one seen before it was posted");
      }
    }
  }
}

}  // namespace rdmaemu::sim
