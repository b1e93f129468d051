// What the checkers of one run complain about. A run is good when nobody complained.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::sim {

class Verdict {
 public:
  // Further complaints are mostly the first one's consequences.
  static constexpr size_t kMaxComplaints = 8;

  void Complain(std::string_view checker, const std::string& what) {
    if (complaints_.size() < kMaxComplaints) {
      complaints_.push_back(std::string(checker) + ": " + what);
    }
  }
  bool clean() const { return complaints_.empty(); }
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  std::vector<std::string> complaints_;
};

}  // namespace rdmaemu::sim
