// The turns of a host, for which threads of its programs wait (abi/host_turn.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "emulator/abi/host_turn.h"
#include "emulator/host/group_waits.h"
#include "emulator/host/processes.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

// The public functions act as those of Host.
class HostTurns {
 public:
  using Wake = std::function<void(uint32_t& futex)>;

  HostTurns(Processes& processes, Verbs& verbs) : processes_(processes), verbs_(verbs) {}

  void ShowProcessor(std::optional<uint32_t> processor) {
    processor_ = processor ? *processor + 1 : 0;
    ShowAll();
  }
  void OpenToAll(bool is_open) {
    if (is_open == is_open_to_all_) return;
    is_open_to_all_ = is_open;
    ShowAll();
  }
  // Writes the page of one group. Call this for each new group.
  void Show(Processes::Group& members) const {
    if (members.doorbells == nullptr) return;
    HostTurn& turn = members.doorbells->turn;
    std::atomic_ref(turn.processor).store(processor_, std::memory_order_relaxed);
    std::atomic_ref(turn.open_to_all).store(is_open_to_all_ ? 1 : 0, std::memory_order_relaxed);
  }

  // Counts the groups with threads that wait. Call Count for each group that has a page.
  void BeginCount() { waits_ = waiting_groups_ = 0; }
  void Count(const Processes::Group& members) {
    const uint32_t waits = TurnWaits(members.doorbells->turn);
    waits_ |= waits;
    waiting_groups_ += waits != 0 ? 1 : 0;
  }
  // Returns where threads wait: bits of HostTurn::awaited.
  uint32_t waits() const { return waits_; }
  uint32_t waiting_groups() const { return waiting_groups_; }

  // Threads on the host's processor run first. So the kernel moves them to a processor that is idle
  // because other threads wait, and the host keeps its own.
  void End(TurnEnd end, const Wake& wake) {
    EndWhere(/*here=*/true, end, wake);
    EndWhere(/*here=*/false, end, wake);
  }
  std::vector<GroupWaits> WaitsOfGroups(size_t most) const {
    std::vector<GroupWaits> waits;
    for (const auto& [group, members] : processes_.groups()) {
      if (waits.size() == most) break;
      if (members.doorbells == nullptr) continue;
      ProgramPlace& place = members.doorbells->place;
      const auto read = [](uint32_t& word) {
        return std::atomic_ref(word).load(std::memory_order_relaxed);
      };
      waits.push_back({group, read(place.processor), read(place.calls), read(place.vain_polls),
                       read(place.copies)});
    }
    return waits;
  }

 private:
  // Ends the waits of groups that wait on the host's processor, or of those that do not.
  void EndWhere(bool here, TurnEnd end, const Wake& wake) {
    for (auto& [group, members] : processes_.groups()) {
      if (members.doorbells == nullptr) continue;
      HostTurn& turn = members.doorbells->turn;
      const uint32_t waits = TurnWaits(turn);
      if (waits == 0 || ((waits & HostTurn::kAwaitedHere) != 0) != here) continue;
      if (end == TurnEnd::kWithOffers && !members.doorbells->jobs.HasOffers()) continue;
      const bool has_news = verbs_.TakeNewCompletions(group);
      if (end == TurnEnd::kWithNews && !has_news) continue;
      if (EndTurn(turn)) wake(turn.ended);
    }
  }
  void ShowAll() const {
    for (auto& [group, members] : processes_.groups()) Show(members);
  }

  Processes& processes_;
  Verbs& verbs_;
  uint32_t waits_ = 0, waiting_groups_ = 0;
  bool is_open_to_all_ = false;  // HostTurn::open_to_all
  uint32_t processor_ = 0;       // HostTurn::processor
};

}  // namespace rdmaemu
