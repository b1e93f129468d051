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

  // Shows the events that a function of Cm has queued. The functions may call each other, and only
  // the last one that returns shows the events: before, the state of an id is not final.
  class Entry {
   public:
    explicit Entry(Impl& impl) : impl_(impl) { impl_.entries++; }
    ~Entry() {
      if (--impl_.entries == 0) impl_.channels.ShowChanged();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Impl& impl_;
  };

  CmAddresses& addresses;
  Channels channels;
  RdmaIds ids;
  uint32_t entries = 0;
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
  const Impl::Entry entry(*impl_);
  if (impl_->channels.Find(group, channel) == nullptr) return Fail(EBADF);
  impl_->DestroyChannel(now, channel);
  return {};
}

Result<size_t> Cm::Call(Time now, GroupId group, ProcessId process, uint32_t channel,
                        uint32_t command, std::span<const std::byte> in, std::span<std::byte> out) {
  const Impl::Entry entry(*impl_);
  Channel* on = impl_->channels.Find(group, channel);
  if (on == nullptr) return Fail(EBADF);
  const ChangedEvents changed = EventsChangedBy(command, in);
  if (changed.which != ChangedEvents::Which::kNone) {
    impl_->channels.WithdrawFromFirst(
        *on, [&](const PendingEvent& event) { return changed.Have(event); });
  }
  CommandContext context{now, group, process, *on, impl_->channels, impl_->ids};
  return RunCommand(context, command, in, out);
}

void Cm::Receive(Time now, const CmRoute& route, const wire::CmMessage& message) {
  const Impl::Entry entry(*impl_);
  const CmDevice* device = impl_->addresses.DeviceOf(route.destination);
  if (device == nullptr) {
    impl_->ids.ib_cm().statistics().dropped_no_device++;
    return;
  }
  impl_->ids.ib_cm().Receive(now, route, *device, message);
}

void Cm::Refused(Time now, const NetAddress& local, const NetAddress& remote) {
  const Impl::Entry entry(*impl_);
  impl_->ids.Refused(now, local, remote);
}
void Cm::QpEnded(Time now, uint32_t qpn) {
  const Impl::Entry entry(*impl_);
  impl_->ids.QpEnded(now, qpn);
}

void Cm::GroupGone(Time now, GroupId group) {
  const Impl::Entry entry(*impl_);
  for (const uint32_t channel : impl_->channels.OfGroup(group)) {
    impl_->DestroyChannel(now, channel);
  }
}

void Cm::EndOrphans(Time now, GroupId group, const Survivors& survivors) {
  const Impl::Entry entry(*impl_);
  for (const uint32_t handle : impl_->channels.OfGroup(group)) {
    const Channel* const channel = impl_->channels.Find(group, handle);
    if (channel != nullptr && !survivors.Hold(channel->maker)) impl_->DestroyChannel(now, handle);
  }
}

void Cm::DeviceRemoved(Time now, uint32_t device_index) {
  const Impl::Entry entry(*impl_);
  impl_->ids.DeviceRemoved(now, device_index);
}

void Cm::AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index) {
  const Impl::Entry entry(*impl_);
  impl_->ids.AddressMoved(now, address, to_device_index);
}

void Cm::SetEventOffers(EventOffers* offers) { impl_->channels.SetOffers(offers); }
bool Cm::HasChannel(GroupId group, uint32_t channel) const {
  return impl_->channels.Find(group, channel) != nullptr;
}
const PendingEvent* Cm::EventAt(GroupId group, uint32_t channel, size_t place) {
  const Channel* const on = impl_->channels.Find(group, channel);
  return on == nullptr ? nullptr : impl_->channels.At(*on, place);
}
void Cm::ReportFront(GroupId group, uint32_t channel) {
  Channel* const on = impl_->channels.Find(group, channel);
  const PendingEvent* const event = on == nullptr ? nullptr : impl_->channels.Front(*on);
  if (event == nullptr) return;
  impl_->ids.EventReported(*event);
  impl_->channels.PopFront(*on);
}
void Cm::ShowEvents() { const Impl::Entry entry(*impl_); }
void Cm::SetEventDoor(EventDoor* door) { impl_->channels.SetDoor(door); }
void Cm::LetGo(const std::optional<std::string_view>& barrier) {
  const Impl::Entry entry(*impl_);
  impl_->channels.LetGo(barrier);
}
bool Cm::HoldsEvents() const { return impl_->channels.HoldsEvents(); }
void Cm::CountHeld(std::map<std::string, uint64_t, std::less<>>& counts) const {
  impl_->channels.CountHeld(counts);
}

void Cm::Expire(Time now) {
  const Impl::Entry entry(*impl_);
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
