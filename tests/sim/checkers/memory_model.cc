#include "tests/sim/checkers/memory_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdmaemu::sim {

MemoryModel::MemoryModel(Verdict& verdict, std::string name, std::span<std::byte> actual)
    : verdict_(verdict),
      name_(std::move(name)),
      actual_(actual),
      known_(actual.begin(), actual.end()) {}

void MemoryModel::Complain(uint64_t offset, const std::string& what) {
  verdict_.Complain("memory", name_ + " at offset " + std::to_string(offset) + ": " + what);
}

void MemoryModel::Learn(uint64_t offset, uint64_t length) {
  std::memcpy(known_.data() + offset, actual_.data() + offset, length);
}

bool MemoryModel::IsFree(uint64_t offset, uint64_t length) const {
  const auto after = targets_.lower_bound(offset);
  if (after != targets_.end() && after->first < offset + length) return false;
  if (after == targets_.begin()) return true;
  const auto before = std::prev(after);
  return before->first + before->second.length <= offset;
}

void MemoryModel::Store(uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (!IsFree(offset, bytes.size())) {
    return Complain(offset, "the program stores into a target of an operation (the test's error)");
  }
  // Checks the earlier bytes first, because the store would hide a late write.
  CheckKnown(offset, offset + bytes.size());
  std::memcpy(actual_.data() + offset, bytes.data(), bytes.size());
  std::memcpy(known_.data() + offset, bytes.data(), bytes.size());
}

MemoryModel::Claim MemoryModel::Add(uint64_t offset, Target target) {
  if (target.length == 0) return 0;
  if (!IsFree(offset, target.length)) {
    Complain(offset, "two operations have one target (the test's error)");
    return 0;
  }
  CheckKnown(offset, offset + target.length);
  target.claim = ++last_claim_;
  offsets_[target.claim] = offset;
  targets_.emplace(offset, std::move(target));
  return last_claim_;
}

MemoryModel::Claim MemoryModel::Expect(uint64_t offset, std::vector<std::byte> bytes) {
  const uint64_t length = bytes.size();
  return Add(offset, {0, length, false, std::move(bytes)});
}

MemoryModel::Claim MemoryModel::Lend(uint64_t offset, uint64_t length) {
  return Add(offset, {0, length, true, {}});
}

void MemoryModel::Written(uint64_t offset, uint64_t length) {
  uint64_t at = offset;
  // Adjacent targets can serve one write together.
  while (at < offset + length) {
    auto target = targets_.upper_bound(at);
    if (target == targets_.begin()) break;
    --target;
    if (target->first + target->second.length <= at) break;
    at = target->first + target->second.length;
  }
  if (at < offset + length) {
    Complain(at, "the host writes bytes that no operation owns (" + std::to_string(length) +
                     " bytes from offset " + std::to_string(offset) + ")");
  }
}

MemoryModel::Targets::iterator MemoryModel::FindTarget(Claim claim) {
  const auto it = offsets_.find(claim);
  return it == offsets_.end() ? targets_.end() : targets_.find(it->second);
}

void MemoryModel::Done(Claim claim) {
  const auto it = FindTarget(claim);
  if (it == targets_.end()) return;
  const auto& [offset, target] = *it;
  if (!target.lent && std::memcmp(actual_.data() + offset, target.bytes.data(), target.length)) {
    const auto wrong = std::mismatch(target.bytes.begin(), target.bytes.end(),
                                     actual_.begin() + static_cast<ptrdiff_t>(offset));
    Complain(offset, "the operation has completed, and byte " +
                         std::to_string(wrong.first - target.bytes.begin()) + " of " +
                         std::to_string(target.length) + " is not what it wrote");
  }
  Learn(offset, target.length);
  offsets_.erase(claim);
  targets_.erase(it);
}

void MemoryModel::DoneLent(Claim claim, std::span<const std::byte> prefix, bool rest_may_change) {
  const auto it = FindTarget(claim);
  if (it == targets_.end()) return;
  const auto& [offset, target] = *it;
  const auto at = actual_.begin() + static_cast<ptrdiff_t>(offset);
  const auto wrong = std::mismatch(prefix.begin(), prefix.end(), at);
  if (wrong.first != prefix.end()) {
    Complain(offset, "byte " + std::to_string(wrong.first - prefix.begin()) + " of " +
                         std::to_string(prefix.size()) + " received is not what was sent");
  }
  const uint64_t behind = target.length - prefix.size();
  Learn(offset, rest_may_change ? target.length : prefix.size());
  CheckKnown(offset + prefix.size(), offset + prefix.size() + behind);
  offsets_.erase(claim);
  targets_.erase(it);
}

void MemoryModel::CheckEither(uint64_t offset, const Target& target) {
  if (target.lent) return;
  for (uint64_t i = 0; i < target.length; i++) {
    const std::byte is = actual_[offset + i];
    if (is == target.bytes[i] || is == known_[offset + i]) continue;
    return Complain(offset, "byte " + std::to_string(i) + " of " + std::to_string(target.length) +
                                " is neither the old one nor the operation's");
  }
}

void MemoryModel::Undecided(Claim claim) {
  const auto it = FindTarget(claim);
  if (it == targets_.end()) return;
  CheckEither(it->first, it->second);
  Learn(it->first, it->second.length);
  offsets_.erase(claim);
  targets_.erase(it);
}

bool MemoryModel::Revoke(Claim claim) {
  const auto it = FindTarget(claim);
  if (it == targets_.end()) return false;
  const auto& bytes = it->second.bytes;
  const bool whole =
      std::equal(bytes.begin(), bytes.end(), actual_.begin() + static_cast<ptrdiff_t>(it->first));
  Undecided(claim);
  return whole;
}

void MemoryModel::CheckKnown(uint64_t from, uint64_t to) {
  if (from >= to || std::memcmp(actual_.data() + from, known_.data() + from, to - from) == 0) {
    return;
  }
  const auto wrong = std::mismatch(known_.begin() + static_cast<ptrdiff_t>(from),
                                   known_.begin() + static_cast<ptrdiff_t>(to),
                                   actual_.begin() + static_cast<ptrdiff_t>(from));
  Complain(static_cast<uint64_t>(wrong.first - known_.begin()),
           "a byte changed that no operation owns");
  Learn(from, to - from);
}

void MemoryModel::Check() {
  uint64_t at = 0;
  for (const auto& [offset, target] : targets_) {
    CheckKnown(at, offset);
    CheckEither(offset, target);
    at = offset + target.length;
  }
  CheckKnown(at, known_.size());
}

}  // namespace rdmaemu::sim
