// Atomics: all of one word have happened in one order, each once, and each was told the value that
// it found (IBTA 9.4.5, 10.7.3). On an adder every operation adds another power of two, on a
// swapper every operation brings another value, so that the order can be read from what was
// answered.
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
  static constexpr uint32_t kMostAdds = 63;  // powers of two that fit, of one word

  explicit AtomicChecker(Verdict& verdict) : verdict_(verdict) {}

  // A word that holds 0.
  Word Open(std::string name);
  // An operation is posted; answers its number. What is added must be a power of two that the word
  // has not had; a word has either adds or swaps.
  uint64_t Add(Word word, Time posted, uint64_t bit);
  uint64_t Swap(Word word, Time posted, uint64_t compare, uint64_t swap);
  uint64_t Count(Word word) const { return words_.at(word).operations.size(); }
  // It succeeded. What is never ended may have happened or not.
  void Ended(Word word, uint64_t operation, Time now, uint64_t original);
  // The last value that somebody was told, a good guess for the next swap.
  uint64_t LastSeen(Word word) const { return words_.at(word).last_seen; }
  // Nothing happens any more; the word holds `value`.
  void Finish(Word word, uint64_t value);

 private:
  struct Operation {
    bool is_add;
    uint64_t operand, compare;  // what is added, or brought
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
