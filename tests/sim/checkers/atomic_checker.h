// Atomics. All atomics on one word happen in one order, each once, and each returns the value that
// it found (IBTA 9.4.5, 10.7.3). On an adder every operation adds another power of two. On a
// swapper every operation writes another value. The returned values thus show the order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "emulator/base/time.h"
#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class AtomicChecker {
 public:
  using Word = uint32_t;
  static constexpr uint32_t kMostAdds = 63;  // the number of powers of two that fit into one word

  explicit AtomicChecker(Verdict& verdict) : verdict_(verdict) {}

  // Creates a word that holds 0.
  Word Open(std::string name);
  // Records that an operation was posted, and returns the operation's number. An added value must
  // be a power of two that is new for the word. A word has either adds or swaps.
  uint64_t Add(Word word, Time posted, uint64_t bit);
  uint64_t Swap(Word word, Time posted, uint64_t compare, uint64_t swap);
  uint64_t Count(Word word) const { return words_.at(word).operations.size(); }
  // The operation succeeded. An operation that never ends may have happened or not.
  void Ended(Word word, uint64_t operation, Time now, uint64_t original);
  // The last value that an operation returned: a good guess for the next swap.
  uint64_t LastSeen(Word word) const { return words_.at(word).last_seen; }
  // All operations are over, and the word holds `value`.
  void Finish(Word word, uint64_t value);

 private:
  struct Operation {
    bool is_add;
    uint64_t operand, compare;  // `operand`: the value to add or write
    Time posted{}, ended{};
    std::optional<uint64_t> original;
  };
  struct State {
    std::string name;
    std::vector<Operation> operations;
    uint64_t last_seen = 0;
  };

  void Complain(const State& state, const std::string& what);
  void FinishAdds(const State& state, uint64_t value);
  void FinishSwaps(const State& state, uint64_t value);

  Verdict& verdict_;
  std::deque<State> words_;
};

}  // namespace rdmaemu::sim
