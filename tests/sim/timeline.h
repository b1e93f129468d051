// Future actions, in the order of their times. Actions at one time keep the order of their
// creation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "emulator/base/time.h"

namespace rdmaemu::sim {

class Timeline {
 public:
  using Action = std::function<void()>;

  void At(Time when, Action action) {
    actions_.emplace(std::pair(when, next_++), std::move(action));
  }
  std::optional<Time> Next() const {
    if (actions_.empty()) return std::nullopt;
    return actions_.begin()->first.first;
  }
  Action Take() { return std::move(actions_.extract(actions_.begin()).mapped()); }

 private:
  std::map<std::pair<Time, uint64_t>, Action> actions_;
  uint64_t next_ = 0;
};

}  // namespace rdmaemu::sim
