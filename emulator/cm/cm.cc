#include "emulator/cm/cm.h"

#include <algorithm>

#include "emulator/cm/channel.h"
#include "emulator/cm/commands.h"
#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

class Cm::Impl {
 public:
  Impl(const CmEnvironment& environment, EventCounters& counters, Random& random,
       trace::Sink& trace, IdSpace numbers)
      : addresses(environment.addresses),
        channels(counters, numbers),
        ids(environment, random, trace, channels, numbers) {}

  void DestroyChannel(Time now, uint32_t channel) {
    ids.DestroyOfChannel(now, channel);
    channels.Destroy(channel);
  }

  CmAddresses& addresses;
  Channels channels;
  RdmaIds ids;
};

Cm::Cm(const CmEnvironment& environment, EventCounters& counters, Random& random,
       trace::Sink& trace, IdSpace ids)
    : impl_(std::make_unique<Impl>(environment, counters, random, trace, ids)) {}
Cm::~Cm() = default;

Result<CmChannel> Cm::CreateChannel(GroupId group, const Maker& maker) {
  const Result<Channel*> channel = impl_->channels.Create(group, maker);
  if (!channel) return tl::make_unexpected(channel.error());
  return CmChannel{(*channel)->handle, (*channel)->counter};
}

Status Cm::DestroyChannel(Time now, GroupId group, uint32_t channel) {
  if (impl_->channels.Find(group, channel) == nullptr) return Fail(EBADF);
  impl_->DestroyChannel(now, channel);
  return {};
}

Result<size_t> Cm::Call(Time now, GroupId group, ProcessId process, uint32_t channel,
                        uint32_t command, std::span<const std::byte> in, std::span<std::byte> out) {
  Channel* on = impl_->channels.Find(group, channel);
  if (on == nullptr) return Fail(EBADF);
  CommandContext context{now, group, process, *on, impl_->channels, impl_->ids};
  return RunCommand(context, command, in, out);
}

void Cm::Receive(Time now, const CmRoute& route, const wire::CmMessage& message) {
  const CmDevice* device = impl_->addresses.DeviceOf(route.destination);
  if (device == nullptr) {
    impl_->ids.ib_cm().statistics().dropped_no_device++;
    return;
  }
  impl_->ids.ib_cm().Receive(now, route, *device, message);
}

void Cm::Refused(Time now, const NetAddress& local, const NetAddress& remote) {
  impl_->ids.Refused(now, local, remote);
}
void Cm::QpEnded(Time now, uint32_t qpn) { impl_->ids.QpEnded(now, qpn); }

void Cm::GroupGone(Time now, GroupId group) {
  for (const uint32_t channel : impl_->channels.OfGroup(group)) {
    impl_->DestroyChannel(now, channel);
  }
}

void Cm::EndOrphans(Time now, GroupId group, const Survivors& survivors) {
  for (const uint32_t handle : impl_->channels.OfGroup(group)) {
    const Channel* const channel = impl_->channels.Find(group, handle);
    if (channel != nullptr && !survivors.Hold(channel->maker)) impl_->DestroyChannel(now, handle);
  }
}

void Cm::DeviceRemoved(Time now, uint32_t device_index) {
  impl_->ids.DeviceRemoved(now, device_index);
}

void Cm::AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index) {
  impl_->ids.AddressMoved(now, address, to_device_index);
}

void Cm::SetEventDoor(EventDoor* door) { impl_->channels.SetDoor(door); }
void Cm::LetGo(const std::optional<std::string_view>& barrier) { impl_->channels.LetGo(barrier); }
bool Cm::HoldsEvents() const { return impl_->channels.HoldsEvents(); }
void Cm::CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const {
  impl_->channels.CountHeld(counts);
}

void Cm::Expire(Time now) {
  impl_->channels.Expire(now);
  impl_->ids.Expire(now);
  impl_->ids.ib_cm().Expire(now);
}

std::optional<Time> Cm::NextDeadline() const {
  Earliest next;
  next.Note(impl_->ids.NextDeadline());
  next.Note(impl_->ids.ib_cm().NextDeadline());
  next.Note(impl_->channels.NextDeadline());
  return next.deadline();
}

bool Cm::AwaitsApplication(Time now) const { return impl_->ids.ib_cm().AwaitsApplication(now); }

size_t Cm::ids() const { return impl_->ids.size(); }
size_t Cm::ids(GroupId group) const { return impl_->ids.OfGroup(group); }
const CmaId* Cm::FindId(GroupId group, uint32_t channel, uint32_t id) {
  if (impl_->channels.Find(group, channel) == nullptr) return nullptr;
  const Result<CmaId*> found = impl_->ids.Get(channel, id);
  return found ? *found : nullptr;
}
size_t Cm::connections() const { return impl_->ids.ib_cm().connections(); }
const CmStatistics& Cm::statistics() const { return impl_->ids.ib_cm().statistics(); }
std::vector<CmListener> Cm::Listeners() const { return impl_->ids.Listeners(); }
std::vector<const CmaId*> Cm::Ids(size_t limit) const { return impl_->ids.All(limit); }
std::vector<const Connection*> Cm::Connections() const { return impl_->ids.ib_cm().All(); }
const std::map<uint32_t, uint64_t>& Cm::queued_events() const {
  return impl_->channels.queued_events();
}

}  // namespace rdmaemu::cm
