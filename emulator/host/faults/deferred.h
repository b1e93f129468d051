// The queue of items that the fault rules of one door delay or hold. Every door uses this class.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "emulator/base/time.h"
#include "emulator/fault/held.h"

namespace rdmaemu {

// Items without a line may overtake each other.
struct NoLine {
  auto operator<=>(const NoLine&) const = default;
};

// Delayed items become due in the order of their times. For equal times, the order of their arrival
// counts. Held items wait for the release of the rule that holds them. With a Line (`T::line`),
// items of one line keep their order. An item that arrives behind a held item waits for that item.
template <class T, class Line = NoLine>
class Deferred {
 public:
  // Holds at most `most` items. `refused` (not owned) counts items that did not fit.
  Deferred(size_t most, uint64_t& refused) : most_(most), refused_(&refused) {}

  size_t size() const { return delayed_.size() + held_.size(); }
  bool holds() const { return !held_.empty(); }
  // Returns false and counts a refusal when the queue is full.
  bool HasRoom() {
    if (size() < most_) return true;
    ++*refused_;
    return false;
  }

  // Returns false when the queue is full and `what` is lost.
  bool Delay(Time until, T what) {
    if (!HasRoom()) return false;
    Put(until, std::move(what));
    return true;
  }
  // Acts as Delay, for a caller that has called HasRoom.
  void Put(Time until, T what) {
    if constexpr (kHasLines) {
      if (LineState& line = lines_[what.line]; line.held > 0) {
        line.held++;
        held_.push_back({{}, until, std::move(what)});
        return;
      }
    }
    PutDelayed(until, std::move(what));
  }
  // Returns false when the queue is full and `what` is lost.
  bool Hold(std::string_view rule, T what) {
    if (!HasRoom()) return false;
    PutHeld(rule, std::move(what));
    return true;
  }
  // Acts as Hold, for a caller that has called HasRoom.
  void PutHeld(std::string_view rule, T what) {
    if constexpr (kHasLines) lines_[what.line].held++;
    held_.push_back({std::string(rule), {}, std::move(what)});
  }

  // Returns true while an item of the line is pending.
  bool Has(const Line& line) const { return lines_.contains(line); }
  // Removes all items of the line, in order, and calls `use` with each.
  template <class Use>
  void TakeLine(const Line& line, const Use& use) {
    std::deque<T> taken;
    Take([&](const T& what) { return what.line == line; }, taken);
    for (T& each : taken) use(std::move(each));
  }

  // Makes the rule's held items due at `now`, in their order.
  void Release(Time now, const fault::Release& release) {
    std::set<Line> blocked;
    std::erase_if(held_, [&](Held& each) {
      if (!release || each.rule == *release) each.rule.clear();
      const Line line = LineOf(each.what);
      if (!each.rule.empty()) {
        if constexpr (kHasLines) blocked.insert(line);
        return false;
      }
      if (blocked.contains(line)) return false;
      if constexpr (kHasLines) lines_[line].held--;
      PutDelayed(std::max(now, each.until), std::move(each.what));
      return true;
    });
  }
  // Drops the items for which `gone` returns true.
  template <class Gone>
  void Forget(const Gone& gone) {
    if (size() == 0) return;
    std::deque<T> dropped;
    Take(gone, dropped);
  }
  template <class Gone>
  void ForgetHeld(const Gone& gone) {
    if (!holds()) return;
    std::deque<T> dropped;
    TakeHeld(gone, dropped);
  }
  // Removes the due items in order, and calls `use` with each. `use` may add more.
  template <class Use>
  void Expire(Time now, const Use& use) {
    while (IsDue(now)) {
      T due = std::move(delayed_.begin()->second);
      delayed_.erase(delayed_.begin());
      Left(LineOf(due), &LineState::delayed);
      use(std::move(due));
    }
  }
  // Makes the delayed items due at `now` for which `is_due` returns true. `is_due` may change an
  // item.
  template <class IsDueNow>
  void Hasten(Time now, const IsDueNow& is_due) {
    static_assert(!kHasLines);
    std::deque<T> hastened;
    EraseDelayed([&](T& each) {
      if (!is_due(each)) return false;
      hastened.push_back(std::move(each));
      return true;
    });
    for (T& each : hastened) delayed_.emplace(now, std::move(each));
  }

  bool IsDue(Time now) const { return !delayed_.empty() && delayed_.begin()->first <= now; }
  std::optional<Time> NextDeadline() const {
    return delayed_.empty() ? std::nullopt : std::optional(delayed_.begin()->first);
  }
  // Adds up the held items of each rule. An item behind a held one counts for the same rule.
  void CountHeld(fault::HeldCounts& counts) const {
    std::map<Line, std::string_view> rules;
    for (const Held& each : held_) {
      std::string_view& rule = rules[LineOf(each.what)];
      if (!each.rule.empty()) rule = each.rule;
      counts[std::string(rule)]++;
    }
  }

 private:
  static constexpr bool kHasLines = !std::is_same_v<Line, NoLine>;
  struct Held {
    std::string rule;  // empty: held only behind another item of its line
    Time until;        // its own delay
    T what;
  };
  struct LineState {
    Time until{};                  // of the last delayed item
    size_t delayed = 0, held = 0;  // numbers of items
  };

  static Line LineOf(const T& what) {
    if constexpr (kHasLines) {
      return what.line;
    } else {
      return {};
    }
  }
  void PutDelayed(Time until, T what) {
    if constexpr (kHasLines) {
      LineState& line = lines_[what.line];
      line.until = until = std::max(line.until, until);
      line.delayed++;
    }
    delayed_.emplace(until, std::move(what));
  }
  void Left(const Line& line, size_t LineState::*count) {
    if constexpr (kHasLines) {
      const auto state = lines_.find(line);
      --(state->second.*count);
      if (state->second.delayed + state->second.held == 0) lines_.erase(state);
    }
  }
  // std::erase_if passes the elements of a map as const.
  template <class IsErased>
  void EraseDelayed(const IsErased& is_erased) {
    for (auto it = delayed_.begin(); it != delayed_.end();) {
      it = is_erased(it->second) ? delayed_.erase(it) : std::next(it);
    }
  }
  template <class Wanted>
  void Take(const Wanted& wanted, std::deque<T>& taken) {
    EraseDelayed([&](T& each) {
      if (!wanted(each)) return false;
      Left(LineOf(each), &LineState::delayed);
      taken.push_back(std::move(each));
      return true;
    });
    TakeHeld(wanted, taken);
  }
  // Removing only a held item would leave its line blocked, so remove whole lines.
  template <class Wanted>
  void TakeHeld(const Wanted& wanted, std::deque<T>& taken) {
    std::erase_if(held_, [&](Held& each) {
      if (!wanted(each.what)) return false;
      Left(LineOf(each.what), &LineState::held);
      taken.push_back(std::move(each.what));
      return true;
    });
  }

  size_t most_;
  uint64_t* refused_;
  std::multimap<Time, T> delayed_;
  std::deque<Held> held_;
  std::map<Line, LineState> lines_;  // lines with pending items; empty without lines
};

}  // namespace rdmaemu
