// The complaints of the checkers of one run. A run without a complaint is good.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::sim {

class Verdict {
 public:
  // Further complaints are mostly consequences of the first one.
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
