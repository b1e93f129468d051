// Event channels: a queue of events each, and a counter that is readable while events wait. What
// the kernel keeps in a struct ucma_file.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
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
  std::map<uint64_t, PendingEvent> events;        // in the order they came
  std::set<std::pair<uint32_t, uint64_t>> by_id;  // (id, place in `events`)
  uint64_t last_place = 0;
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
  void PopFront(Channel& channel);
  // Takes out an id's events that `match` answers true for, in order; nobody will be woken for
  // them. Costs what the id has waiting, whatever the others have.
  template <class Match>
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id, const Match& match) {
    std::vector<PendingEvent> taken;
    const auto found = channels_.find(handle);
    if (found == channels_.end()) return taken;
    Channel& channel = found->second;
    for (auto it = channel.by_id.lower_bound({id, 0});
         it != channel.by_id.end() && it->first == id;) {
      const auto event = channel.events.find(it->second);
      if (!match(event->second)) {
        ++it;
        continue;
      }
      taken.push_back(std::move(event->second));
      channel.events.erase(event);
      it = channel.by_id.erase(it);
    }
    if (!taken.empty()) counters_.Remove(channel.counter, static_cast<uint32_t>(taken.size()));
    return taken;
  }
  std::vector<PendingEvent> Take(uint32_t handle, uint32_t id) {
    return Take(handle, id, [](const PendingEvent&) { return true; });
  }
  // Drops all that waits on a channel that is about to go, and its counter with it.
  void Clear(uint32_t handle);

 private:
  EventCounters& counters_;
  std::map<uint32_t, Channel> channels_;
  std::map<GroupId, size_t> per_group_;
  uint32_t last_handle_ = 0;
};

}  // namespace rdmaemu::cm
