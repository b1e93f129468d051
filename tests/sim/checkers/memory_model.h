// What the bytes of one process may be. Every byte that is not the target of an operation has the
// value that the program knows; a target has, until its operation ends, the old value or the new,
// and afterwards what the operation's end promises. A host writes nowhere but into targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class MemoryModel {
 public:
  using Claim = uint64_t;  // an operation's right to write; 0: none

  // `actual` is the memory itself, as the host reaches it; what it holds now is known.
  MemoryModel(Verdict& verdict, std::string name, std::span<std::byte> actual);

  std::span<const std::byte> known() const { return known_; }
  // The program stores bytes where no operation writes.
  void Store(uint64_t offset, std::span<const std::byte> bytes);
  // An operation may write these bytes from now on.
  Claim Expect(uint64_t offset, std::vector<std::byte> bytes);
  // An operation may write any bytes: a receive buffer, the word of an atomic.
  Claim Lend(uint64_t offset, uint64_t length);

  // The host writes now.
  void Written(uint64_t offset, uint64_t length);

  // The operation succeeded: its bytes are there. Nobody writes them any more.
  void Done(Claim claim);
  // As Done, for lent bytes: the first are these; those behind them were not touched, unless
  // `rest_may_change`.
  void DoneLent(Claim claim, std::span<const std::byte> prefix, bool rest_may_change = false);
  // The operation failed: each byte may be the old or the new one. Nobody writes any more.
  void Undecided(Claim claim);
  // The right to write ends before the operation does: as Undecided. True when all of an Expect's
  // bytes are there.
  bool Revoke(Claim claim);
  // Looks at all bytes.
  void Check();

 private:
  struct Target {
    Claim claim;
    uint64_t length;
    bool lent;
    std::vector<std::byte> bytes;  // of an Expect
  };
  using Targets = std::map<uint64_t, Target>;  // by offset; they do not overlap

  Targets::iterator FindTarget(Claim claim);
  Claim Add(uint64_t offset, Target target);
  bool IsFree(uint64_t offset, uint64_t length) const;
  void CheckEither(uint64_t offset, const Target& target);
  void CheckKnown(uint64_t from, uint64_t to);
  void Complain(uint64_t offset, const std::string& what);
  // The program has looked: what is there is what it knows.
  void Learn(uint64_t offset, uint64_t length);

  Verdict& verdict_;
  std::string name_;
  std::span<std::byte> actual_;
  std::vector<std::byte> known_;
  Targets targets_;
  std::map<Claim, uint64_t> offsets_;
  Claim last_claim_ = 0;
};

}  // namespace rdmaemu::sim
