// Counts of operations, faults, statuses and retries in runs. A simulation that never reaches a
// case proves nothing about it, so the test fails for every case with the count 0.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::sim {

class Tally {
 public:
  void Count(std::string_view what, uint64_t times = 1) {
    if (times == 0) return;
    const auto it = counts_.find(what);
    if (it != counts_.end()) {
      it->second += times;
    } else {
      counts_.emplace(std::string(what), times);
    }
  }
  void Add(const Tally& other) {
    for (const auto& [what, times] : other.counts_) Count(what, times);
  }
  uint64_t Of(std::string_view what) const {
    const auto it = counts_.find(what);
    return it == counts_.end() ? 0 : it->second;
  }
  const std::map<std::string, uint64_t, std::less<>>& counts() const { return counts_; }
  std::string ToText() const;

 private:
  std::map<std::string, uint64_t, std::less<>> counts_;
};

// Return the cases that a large number of runs should have reached and did not.
std::vector<std::string> MissingOfTraffic(const Tally& tally);
std::vector<std::string> MissingOfCm(const Tally& tally);

}  // namespace rdmaemu::sim
