// The possible values of the bytes of one process. Every byte outside the targets of operations has
// the value that the program stored. Until its operation ends, a target has the old value or the
// new one. Afterwards it has the value that the operation's end guarantees. A host writes only into
// targets.
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

  // `actual` is the memory itself, as the host accesses it. Its current content is known.
  MemoryModel(Verdict& verdict, std::string name, std::span<std::byte> actual);

  std::span<const std::byte> known() const { return known_; }
  // The program stores bytes that no operation writes.
  void Store(uint64_t offset, std::span<const std::byte> bytes);
  // An operation may write these bytes from now on.
  Claim Expect(uint64_t offset, std::vector<std::byte> bytes);
  // An operation may write any bytes: a receive buffer, the word of an atomic.
  Claim Lend(uint64_t offset, uint64_t length);

  // The host writes these bytes now.
  void Written(uint64_t offset, uint64_t length);

  // The operation succeeded, and its bytes have arrived. No operation writes them any more.
  void Done(Claim claim);
  // As Done, for lent bytes. `prefix` is their beginning. The bytes after it are unchanged unless
  // `rest_may_change`.
  void DoneLent(Claim claim, std::span<const std::byte> prefix, bool rest_may_change = false);
  // The operation failed. Each byte may be the old or the new one. No operation writes them any
  // more.
  void Undecided(Claim claim);
  // The right to write ends before the operation does: as Undecided. Returns whether all of an
  // Expect's bytes have arrived.
  bool Revoke(Claim claim);
  // Checks all bytes.
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
  // The program has read the bytes, so their current values are known.
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
