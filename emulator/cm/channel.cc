#include "emulator/cm/channel.h"

#include <utility>

namespace rdmaemu::cm {

Channels::~Channels() {
  for (const auto& [handle, channel] : channels_) counters_.Destroy(channel.counter);
}

Result<Channel*> Channels::Create(GroupId group) {
  const auto held = per_group_.find(group);
  if (held != per_group_.end() && held->second >= kMaxChannelsPerGroup) return Fail(EMFILE);
  const Result<CounterId> counter = counters_.Create();
  if (!counter) return tl::make_unexpected(counter.error());
  per_group_[group]++;
  const uint32_t handle = handles_.At(++made_);
  return &channels_
              .emplace(handle, Channel{.handle = handle,
                                       .group = group,
                                       .counter = *counter,
                                       .events = {},
                                       .by_id = {}})
              .first->second;
}

void Channels::Destroy(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return;
  counters_.Destroy(it->second.counter);
  holding_.erase(handle);
  if (--per_group_[it->second.group] == 0) per_group_.erase(it->second.group);
  channels_.erase(it);
}

Channel* Channels::Find(GroupId group, uint32_t handle) {
  const auto it = channels_.find(handle);
  return it == channels_.end() || it->second.group != group ? nullptr : &it->second;
}

std::vector<uint32_t> Channels::OfGroup(GroupId group) const {
  std::vector<uint32_t> handles;
  for (const auto& [handle, channel] : channels_) {
    if (channel.group == group) handles.push_back(handle);
  }
  return handles;
}

bool Channels::Push(uint32_t handle, PendingEvent event) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return false;
  if (door_ != nullptr) event.held_by = door_->BarrierOf(it->second.group, event.response.event);
  return Move(handle, std::move(event));
}

bool Channels::Move(uint32_t handle, PendingEvent event) {
  const auto it = channels_.find(handle);
  if (it == channels_.end() || it->second.events.size() >= kMaxEventsPerChannel) return false;
  Channel& channel = it->second;
  const uint64_t place = ++channel.last_place;
  const bool is_held = !event.held_by.empty();
  channel.by_id.insert({event.id, place});
  channel.events.emplace_hint(channel.events.end(), place, std::move(event));
  if (channel.hidden_from != Channel::kNothingHidden) return true;
  if (is_held) {
    Hide(channel, place);
  } else {
    counters_.Add(channel.counter, 1);
  }
  return true;
}

void Channels::Hide(Channel& channel, uint64_t from) {
  channel.hidden_from = from;
  if (from == Channel::kNothingHidden) {
    holding_.erase(channel.handle);
  } else {
    holding_.insert(channel.handle);
  }
}

void Channels::Show(Channel& channel) {
  if (channel.hidden_from == Channel::kNothingHidden) return;
  uint32_t shown = 0;
  auto it = channel.events.lower_bound(channel.hidden_from);
  for (; it != channel.events.end() && it->second.held_by.empty(); ++it) shown++;
  Hide(channel, it == channel.events.end() ? Channel::kNothingHidden : it->first);
  if (shown > 0) counters_.Add(channel.counter, shown);
}

void Channels::LetGo(const std::optional<std::string_view>& barrier) {
  for (const uint32_t handle : std::set(holding_)) {
    Channel& channel = channels_.at(handle);
    for (auto it = channel.events.lower_bound(channel.hidden_from); it != channel.events.end();
         ++it) {
      if (!barrier || it->second.held_by == *barrier) it->second.held_by.clear();
    }
    Show(channel);
  }
}

void Channels::CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const {
  for (const uint32_t handle : holding_) {
    const Channel& channel = channels_.at(handle);
    std::string_view barrier;
    for (auto it = channel.events.lower_bound(channel.hidden_from); it != channel.events.end();
         ++it) {
      if (!it->second.held_by.empty()) barrier = it->second.held_by;
      counts[std::string(barrier)]++;
    }
  }
}

const PendingEvent* Channels::Front(Channel& channel) const {
  const auto oldest = channel.events.begin();
  if (oldest == channel.events.end() || oldest->first >= channel.hidden_from) return nullptr;
  return &oldest->second;
}

void Channels::PopFront(Channel& channel) {
  const auto oldest = channel.events.begin();
  channel.by_id.erase({oldest->second.id, oldest->first});
  channel.events.erase(oldest);
}

void Channels::Clear(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return;
  it->second.events.clear();
  it->second.by_id.clear();
  Hide(it->second, Channel::kNothingHidden);
}

}  // namespace rdmaemu::cm
