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
  return &channels_.emplace(handle, Channel{handle, group, *counter, {}}).first->second;
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
  it->second.events.push_back(std::move(event));
  counters_.Add(it->second.counter, 1);
  return true;
}

const PendingEvent* Channels::Front(Channel& channel) const {
  return channel.events.empty() ? nullptr : &channel.events.front();
}

}  // namespace rdmaemu::cm
