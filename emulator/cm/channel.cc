#include "emulator/cm/channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rdmaemu::cm {

Channels::~Channels() {
  for (const auto& [handle, channel] : channels_) counters_.Destroy(channel.counter);
}

Result<Channel*> Channels::Create(GroupId group, const Maker& maker) {
  const auto held = per_group_.find(group);
  if (held != per_group_.end() && held->second >= kMaxChannelsPerGroup) return Fail(EMFILE);
  const Result<CounterId> counter = counters_.Create();
  if (!counter) return tl::make_unexpected(counter.error());
  per_group_[group]++;
  const uint32_t handle = handles_.At(++made_);
  return &channels_
              .emplace(handle, Channel{.handle = handle,
                                       .group = group,
                                       .maker = maker,
                                       .counter = *counter,
                                       .events = {},
                                       .by_id = {}})
              .first->second;
}

void Channels::Destroy(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return;
  Clear(handle);
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
  if (it == channels_.end()) return false;
  if (door_ != nullptr) event.wait = door_->WaitOf(it->second.group, event.response.event);
  if (event.wait.is_lost) return false;
  const uint32_t type = event.response.event;
  if (!Move(handle, std::move(event))) return false;
  queued_events_[type]++;
  return true;
}

bool Channels::HasRoomForWriter(uint32_t handle) const {
  const auto it = channels_.find(handle);
  return it != channels_.end() && it->second.events.size() < kMaxEventsForWriters;
}

bool Channels::Move(uint32_t handle, PendingEvent event) {
  const auto it = channels_.find(handle);
  if (it == channels_.end() || it->second.events.size() >= kMaxEventsPerChannel) return false;
  Channel& channel = it->second;
  const uint64_t place = ++channel.last_place;
  const EventWait& wait = event.wait;
  const bool is_over = wait.over();
  if (wait.until) timed_.insert({*wait.until, handle, place});
  spare_by_id_.Insert(channel.by_id, std::pair(event.id, place));
  spare_events_.Insert(channel.events, place, std::move(event));
  if (channel.hidden_from != Channel::kNothingHidden) return true;
  if (is_over) {
    Count(channel, 1);
  } else {
    Hide(channel, place);
  }
  return true;
}

void Channels::Uncount(Channel& channel, uint32_t events) {
  const uint32_t waiting = std::min(events, channel.uncounted);
  channel.uncounted -= waiting;
  if (events > waiting) counters_.Remove(channel.counter, events - waiting);
}

void Channels::ShowChanged() {
  if (changed_.empty()) return;
  std::vector<uint32_t> changed = std::exchange(changed_, std::move(spare_));
  std::ranges::sort(changed);
  for (const uint32_t handle : changed) {
    const auto it = channels_.find(handle);
    if (it == channels_.end()) continue;
    Channel& channel = it->second;
    channel.is_changed = false;
    if (offers_ != nullptr && Front(channel) != nullptr) offers_->Offer(handle);
    const uint32_t uncounted = std::exchange(channel.uncounted, 0);
    if (uncounted > 0) counters_.Add(channel.counter, uncounted);
  }
  changed.clear();
  spare_ = std::move(changed);
}

void Channels::Hide(Channel& channel, uint64_t from) {
  channel.hidden_from = from;
  if (from == Channel::kNothingHidden) {
    hiding_.erase(channel.handle);
  } else {
    hiding_.insert(channel.handle);
  }
}

void Channels::Show(Channel& channel) {
  if (channel.hidden_from == Channel::kNothingHidden) return;
  uint32_t shown = 0;
  auto it = channel.events.lower_bound(channel.hidden_from);
  for (; it != channel.events.end() && it->second.wait.over(); ++it) shown++;
  Hide(channel, it == channel.events.end() ? Channel::kNothingHidden : it->first);
  if (shown > 0) Count(channel, shown);
}

void Channels::LetGo(const std::optional<std::string_view>& barrier) {
  for (const uint32_t handle : std::set(hiding_)) {
    Channel& channel = channels_.at(handle);
    for (auto it = channel.events.lower_bound(channel.hidden_from); it != channel.events.end();
         ++it) {
      std::string& held_by = it->second.wait.barrier;
      if (!barrier || held_by == *barrier) held_by.clear();
    }
    Show(channel);
  }
}

bool Channels::HoldsEvents() const {
  return std::ranges::any_of(hiding_, [&](uint32_t handle) {
    const auto& events = channels_.at(handle).events;
    return std::any_of(events.lower_bound(channels_.at(handle).hidden_from), events.end(),
                       [](const auto& each) { return !each.second.wait.barrier.empty(); });
  });
}

void Channels::Expire(Time now) {
  while (!timed_.empty() && timed_.begin()->until <= now) {
    const Timed due = *timed_.begin();
    timed_.erase(timed_.begin());
    Channel& channel = channels_.at(due.channel);
    channel.events.at(due.place).wait.until.reset();
    Show(channel);
  }
}

void Channels::CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const {
  for (const uint32_t handle : hiding_) {
    const Channel& channel = channels_.at(handle);
    std::string_view barrier;
    for (auto it = channel.events.lower_bound(channel.hidden_from); it != channel.events.end();
         ++it) {
      if (!it->second.wait.barrier.empty()) barrier = it->second.wait.barrier;
      if (!barrier.empty()) counts[std::string(barrier)]++;
    }
  }
}

const PendingEvent* Channels::At(const Channel& channel, size_t place) const {
  if (place >= channel.events.size()) return nullptr;
  const auto event = std::next(channel.events.begin(), static_cast<ptrdiff_t>(place));
  return event->first >= channel.hidden_from ? nullptr : &event->second;
}

void Channels::PopFront(Channel& channel) {
  const auto oldest = channel.events.begin();
  spare_by_id_.Erase(channel.by_id, std::pair(oldest->second.id, oldest->first));
  spare_events_.Erase(channel.events, oldest);
  Changed(channel);
}

void Channels::Clear(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return;
  if (offers_ != nullptr) offers_->Withdraw(handle, 0);
  for (const auto& event : it->second.events) Untime(it->second, event);
  it->second.events.clear();
  it->second.by_id.clear();
  Hide(it->second, Channel::kNothingHidden);
}

}  // namespace rdmaemu::cm
