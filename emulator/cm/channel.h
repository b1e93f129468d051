// Event channels: a queue of events each, and a counter that is readable while events wait. What
// the kernel keeps in a struct ucma_file. An event that a fault rule keeps back, and those behind
// it, are in the queue and cannot be seen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/base/id_space.h"
#include "emulator/base/ids.h"
#include "emulator/base/memory.h"
#include "emulator/base/result.h"
#include "emulator/base/survivors.h"
#include "emulator/cm/cm.h"
#include "emulator/cm/events.h"

namespace rdmaemu::cm {

struct Channel {
  uint32_t handle;
  GroupId group;
  Maker maker;
  CounterId counter;
  std::map<uint64_t, PendingEvent> events;        // in the order they came
  std::set<std::pair<uint32_t, uint64_t>> by_id;  // (id, place in `events`)
  uint64_t last_place = 0;
  // Place of the first event that is kept back; it and what comes after it cannot be seen.
  uint64_t hidden_from = kNothingHidden;

  static constexpr uint64_t kNothingHidden = UINT64_MAX;
};

class Channels {
 public:
  // A synchronous id has a channel of its own, so there may be as many as ids.
  static constexpr size_t kMaxChannelsPerGroup = 65536;
  // The kernel bounds connection requests by the backlog; this bounds the rest too.
  static constexpr size_t kMaxEventsPerChannel = 65536;

  explicit Channels(EventCounters& counters, IdSpace handles = {})
      : counters_(counters), handles_(handles) {}
  ~Channels();

  Result<Channel*> Create(GroupId group, const Maker& maker = {});  // EMFILE
  void Destroy(uint32_t handle);                                    // drops what still waits
  Channel* Find(GroupId group, uint32_t handle);
  std::vector<uint32_t> OfGroup(GroupId group) const;

  // A new event, which the door is asked about. False: the channel is full, and it is lost.
  bool Push(uint32_t channel, PendingEvent event);
  // How many events of each type Push has queued.
  const std::map<uint32_t, uint64_t>& queued_events() const { return queued_events_; }
  // One that comes from another channel.
  bool Move(uint32_t channel, PendingEvent event);
  // The oldest event stays until the caller takes it; nullptr when there is none to be seen.
  const PendingEvent* Front(Channel& channel) const;
  void PopFront(Channel& channel);
  // Takes out an id's events that `match` answers true for, in order; nobody will be woken for
  // them. Costs what the id has waiting, whatever the others have.
  template <class Match>
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id, const Match& match) {
    std::vector<PendingEvent> taken;
    const auto found = channels_.find(handle);
    if (found == channels_.end()) return taken;
    Channel& channel = found->second;
    uint32_t seen = 0;
    for (auto it = channel.by_id.lower_bound({id, 0});
         it != channel.by_id.end() && it->first == id;) {
      const auto event = channel.events.find(it->second);
      if (!match(event->second)) {
        ++it;
        continue;
      }
      if (it->second < channel.hidden_from) seen++;
      Untime(channel, *event);
      taken.push_back(std::move(event->second));
      channel.events.erase(event);
      it = channel.by_id.erase(it);
    }
    if (seen > 0) counters_.Remove(channel.counter, seen);
    Show(channel);
    return taken;
  }
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id) {
    return Take(handle, id, [](const PendingEvent&) { return true; });
  }
  // Drops all that waits on a channel that is about to go, and its counter with it.
  void Clear(uint32_t handle);

  // Barriers, as Cm has them.
  void SetDoor(EventDoor* door) { door_ = door; }
  void LetGo(const std::optional<std::string_view>& barrier);
  bool HoldsEvents() const;
  void CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const;

  // Events whose time has come can be seen.
  void Expire(Time now);
  std::optional<Time> NextDeadline() const {
    return timed_.empty() ? std::nullopt : std::optional(timed_.begin()->until);
  }

 private:
  // An event that waits for its time.
  struct Timed {
    Time until;
    uint32_t channel;
    uint64_t place;
    auto operator<=>(const Timed&) const = default;
  };

  // The events up to the first that is kept back can be seen.
  void Show(Channel& channel);
  void Hide(Channel& channel, uint64_t from);
  // The event is about to go: no time shall come for it.
  void Untime(const Channel& channel, const std::pair<const uint64_t, PendingEvent>& event) {
    const std::optional<Time> until = event.second.wait.until;
    if (until) timed_.erase({*until, channel.handle, event.first});
  }

  EventCounters& counters_;
  EventDoor* door_ = nullptr;
  std::map<uint32_t, Channel> channels_;
  std::set<uint32_t> hiding_;  // channels that hide something
  std::set<Timed> timed_;
  std::map<GroupId, size_t> per_group_;
  std::map<uint32_t, uint64_t> queued_events_;
  const IdSpace handles_;
  uint32_t made_ = 0;
};

}  // namespace rdmaemu::cm
