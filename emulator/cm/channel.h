// Event channels: each has a queue of events, and a counter that is readable while events are
// pending. The kernel's counterpart is struct ucma_file. An event that a fault rule holds, and the
// events behind it, stay in the queue and are hidden from the program.
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
#include "emulator/base/spare_nodes.h"
#include "emulator/base/survivors.h"
#include "emulator/cm/cm.h"
#include "emulator/cm/events.h"

namespace rdmaemu::cm {

struct Channel {
  uint32_t handle;
  GroupId group;
  Maker maker;
  CounterId counter;
  using Events = std::map<uint64_t, PendingEvent>;
  using ById = std::set<std::pair<uint32_t, uint64_t>>;
  Events events;  // in the order of arrival
  ById by_id;     // (id, place in `events`)
  uint64_t last_place = 0;
  uint32_t uncounted = 0;   // visible events that `counter` does not count yet
  bool is_changed = false;  // since ShowChanged
  // Place of the first held event. That event and all later ones are hidden from the program.
  uint64_t hidden_from = kNothingHidden;

  static constexpr uint64_t kNothingHidden = UINT64_MAX;
};

class Channels {
 public:
  // A synchronous id has its own channel, so there may be as many channels as ids.
  static constexpr size_t kMaxChannelsPerGroup = 65536;
  // The kernel limits connection requests by the backlog. This constant limits all events. Only a
  // program that repeats failing calls, and does not fetch their events, gets here.
  static constexpr size_t kMaxEventsPerChannel = 262144;
  // While a channel has this many events, a program can write no more (rdma_write_cm_event). So
  // there is room for the events of calls that have succeeded.
  static constexpr size_t kMaxEventsForWriters = 65536;

  explicit Channels(EventCounters& counters, IdSpace handles = {})
      : counters_(counters), handles_(handles) {}
  ~Channels();

  Result<Channel*> Create(GroupId group, const Maker& maker = {});  // EMFILE
  void Destroy(uint32_t handle);                                    // drops pending events
  Channel* Find(GroupId group, uint32_t handle);
  std::vector<uint32_t> OfGroup(GroupId group) const;

  // Queues a new event, after the door has decided whether to hold it. Returns false when the
  // channel is full, and the event is lost.
  bool Push(uint32_t channel, PendingEvent event);
  // Returns false if a program must not write an event to the channel now.
  bool HasRoomForWriter(uint32_t channel) const;
  // Returns how many events of each type Push has queued.
  const std::map<uint32_t, uint64_t>& queued_events() const { return queued_events_; }
  // Queues an event of another channel. Returns false when the channel is full, and the event is
  // lost.
  bool Move(uint32_t channel, PendingEvent event);
  // Returns the event at this place without removing it, nullptr when fewer events are visible. The
  // oldest event has place 0.
  const PendingEvent* At(const Channel& channel, size_t place) const;
  const PendingEvent* Front(const Channel& channel) const { return At(channel, 0); }
  void PopFront(Channel& channel);
  // Removes an id's events for which `match` returns true, in order. The channel's counter no
  // longer counts them. The cost depends only on the number of the id's own events.
  template <class Match>
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id, const Match& match) {
    std::vector<PendingEvent> taken;
    const auto found = channels_.find(handle);
    if (found == channels_.end()) return taken;
    Channel& channel = found->second;
    WithdrawFromFirst(channel, [&](const PendingEvent& event) { return event.id == id; });
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
      spare_events_.Erase(channel.events, event);
      it = spare_by_id_.Erase(channel.by_id, it);
    }
    Uncount(channel, seen);
    Show(channel);
    Changed(channel);
    return taken;
  }
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id) {
    return Take(handle, id, [](const PendingEvent&) { return true; });
  }
  // Drops all events of a channel that is about to be destroyed.
  void Clear(uint32_t handle);

  // Barriers work as in class Cm.
  void SetDoor(EventDoor* door) { door_ = door; }
  void LetGo(const std::optional<std::string_view>& barrier);
  bool HoldsEvents() const;
  void CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const;

  void SetOffers(EventOffers* offers) { offers_ = offers; }
  // Withdraws the first offered event for which `match` returns true, and those behind it.
  template <class Match>
  void WithdrawFromFirst(const Channel& channel, const Match& match) {
    if (offers_ == nullptr) return;
    const size_t offered = offers_->Offered(channel.handle);
    auto event = channel.events.begin();
    for (size_t place = 0; place < offered && event != channel.events.end(); place++, ++event) {
      if (match(event->second)) return offers_->Withdraw(channel.handle, place);
    }
  }
  // Call this before a call fetches the first event.
  void BeforeFetch(uint32_t channel) {
    if (offers_ != nullptr) offers_->BeforeFetch(channel);
  }
  // Offers the first events of the channels that have changed, then counts their new events. A
  // program therefore finds the offer when its counter is readable.
  void ShowChanged();

  // Makes the events visible whose delay has ended.
  void Expire(Time now);
  std::optional<Time> NextDeadline() const {
    return timed_.empty() ? std::nullopt : std::optional(timed_.begin()->until);
  }

 private:
  // A delayed event.
  struct Timed {
    Time until;
    uint32_t channel;
    uint64_t place;
    auto operator<=>(const Timed&) const = default;
  };

  // Makes the events up to the first held one visible.
  void Show(Channel& channel);
  void Hide(Channel& channel, uint64_t from);
  void Count(Channel& channel, uint32_t events) {
    channel.uncounted += events;
    Changed(channel);
  }
  void Changed(Channel& channel) {
    if (!std::exchange(channel.is_changed, true)) changed_.push_back(channel.handle);
  }
  // Takes back the counts of removed events.
  void Uncount(Channel& channel, uint32_t events);
  // Removes the event's delay before the event itself is removed.
  void Untime(const Channel& channel, const std::pair<const uint64_t, PendingEvent>& event) {
    const std::optional<Time> until = event.second.wait.until;
    if (until) timed_.erase({*until, channel.handle, event.first});
  }

  EventCounters& counters_;
  SpareNodes<Channel::Events> spare_events_;
  SpareNodes<Channel::ById> spare_by_id_;
  EventDoor* door_ = nullptr;
  EventOffers* offers_ = nullptr;
  std::vector<uint32_t> changed_;  // channels for ShowChanged; some may be gone
  std::vector<uint32_t> spare_;    // empty; memory for `changed_`
  std::map<uint32_t, Channel> channels_;
  std::set<uint32_t> hiding_;  // channels with hidden events
  std::set<Timed> timed_;
  std::map<GroupId, size_t> per_group_;
  std::map<uint32_t, uint64_t> queued_events_;
  const IdSpace handles_;
  uint32_t made_ = 0;
};

}  // namespace rdmaemu::cm
