// What the barriers of one door hold, each under the name of its rule, in the order in which it
// came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rdmaemu::fault {

// How much is held, by rule.
using HeldCounts = std::map<std::string, uint64_t, std::less<>>;
// Whose barrier lets go: one rule's, or (nothing) everyone's.
using Release = std::optional<std::string_view>;

// The door says how much may wait.
template <class T>
class Held {
 public:
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }

  void Add(std::string_view rule, T what) { all_.push_back({std::string(rule), std::move(what)}); }
  // `go` gets each thing, in order, and does not come back here.
  template <class Go>
  void LetGo(const Release& release, const Go& go) {
    std::erase_if(all_, [&](Each& each) {
      if (release && each.rule != *release) return false;
      go(std::move(each.what));
      return true;
    });
  }
  // What `gone` answers true for never goes on.
  template <class Gone>
  void Forget(const Gone& gone) {
    std::erase_if(all_, [&](const Each& each) { return gone(each.what); });
  }
  void Count(HeldCounts& counts) const {
    for (const Each& each : all_) counts[each.rule]++;
  }

 private:
  struct Each {
    std::string rule;
    T what;
  };
  std::deque<Each> all_;
};

}  // namespace rdmaemu::fault
