// Counts of what happened in runs: operations, faults, statuses, retries. A simulation that never
// meets a case proves nothing about it, so the test fails for every case that stayed at zero.
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

// What must have happened in a large number of runs and did not.
std::vector<std::string> MissingOfTraffic(const Tally& tally);
std::vector<std::string> MissingOfCm(const Tally& tally);

}  // namespace rdmaemu::sim
