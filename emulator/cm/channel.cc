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
  const uint32_t handle = ++last_handle_;
  return &channels_.emplace(handle, Channel{handle, group, *counter, {}, {}}).first->second;
}

void Channels::Destroy(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return;
  counters_.Destroy(it->second.counter);
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
  if (it == channels_.end() || it->second.events.size() >= kMaxEventsPerChannel) return false;
  Channel& channel = it->second;
  const uint64_t place = ++channel.last_place;
  channel.by_id.insert({event.id, place});
  channel.events.emplace_hint(channel.events.end(), place, std::move(event));
  counters_.Add(channel.counter, 1);
  return true;
}

const PendingEvent* Channels::Front(Channel& channel) const {
  return channel.events.empty() ? nullptr : &channel.events.begin()->second;
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
}

}  // namespace rdmaemu::cm
