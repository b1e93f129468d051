// Event channels: a queue of events each, and a counter that is readable while events wait. What
// the kernel keeps in a struct ucma_file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/base/memory.h"
#include "emulator/base/result.h"
#include "emulator/cm/events.h"

namespace rdmaemu::cm {

struct Channel {
  uint32_t handle;
  GroupId group;
  CounterId counter;
  std::deque<PendingEvent> events;
};

class Channels {
 public:
  // A synchronous id has a channel of its own, so there may be as many as ids.
  static constexpr size_t kMaxChannelsPerGroup = 65536;
  // The kernel bounds connection requests by the backlog; this bounds the rest too.
  static constexpr size_t kMaxEventsPerChannel = 65536;

  explicit Channels(EventCounters& counters) : counters_(counters) {}
  ~Channels();

  Result<Channel*> Create(GroupId group);  // EMFILE
  void Destroy(uint32_t handle);           // drops what still waits
  Channel* Find(GroupId group, uint32_t handle);
  std::vector<uint32_t> OfGroup(GroupId group) const;

  // False: the channel is full, and the event is lost.
  bool Push(uint32_t channel, PendingEvent event);
  // The oldest event stays until the caller takes it; nullptr when there is none.
  const PendingEvent* Front(Channel& channel) const;
  void PopFront(Channel& channel) { channel.events.pop_front(); }
  // Takes out the events that `match` answers true for, in order; nobody will be woken for them.
  template <class Match>
  std::vector<PendingEvent> Take(uint32_t handle, const Match& match) {
    std::vector<PendingEvent> taken;
    const auto it = channels_.find(handle);
    if (it == channels_.end() || std::ranges::none_of(it->second.events, match)) return taken;
    std::deque<PendingEvent> kept;
    for (PendingEvent& event : it->second.events) {
      if (match(event)) {
        taken.push_back(event);
      } else {
        kept.push_back(event);
      }
    }
    it->second.events.swap(kept);
    counters_.Remove(it->second.counter, static_cast<uint32_t>(taken.size()));
    return taken;
  }

 private:
  EventCounters& counters_;
  std::map<uint32_t, Channel> channels_;
  std::map<GroupId, size_t> per_group_;
  uint32_t last_handle_ = 0;
};

}  // namespace rdmaemu::cm
