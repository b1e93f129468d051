#include "emulator/host/event_offers.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "emulator/abi/sequence.h"
#include "emulator/base/nothing_queued.h"
#include "emulator/cm/events.h"
#include "emulator/host/calls/struct_reply.h"
#include "emulator/host/sequence.h"

namespace rdmaemu {
namespace {

// The first step begins with its channel.
constexpr size_t kChannelOffset = sizeof(SequenceIn) + sizeof(StepHeader);

template <class T>
T Load(std::span<const std::byte> bytes, size_t offset) {
  T value{};
  if (bytes.size() >= offset + sizeof value) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

}  // namespace

void HostEventOffers::Remember(ProcessId process, std::span<const std::byte> body) {
  const auto known = fetches_.find(process);
  if (known != fetches_.end() && std::ranges::equal(known->second.body, body)) return;
  const auto channel = Load<uint32_t>(body, kChannelOffset);
  if (!FetchesEvent(body) || !cm_.HasChannel(processes_.Find(process)->group, channel)) return;
  Forget(process);
  Fetch& fetch = fetches_[process];
  fetch.channel = channel;
  fetch.body.assign(body.begin(), body.end());
  by_channel_[channel] = process;
}

size_t HostEventOffers::Fetched(const Made& made, const OfferedRange& in_page) {
  const auto fetched = static_cast<uint16_t>(in_page.first - made.range.first);
  const bool is_plausible = in_page.generation == made.range.generation &&
                            in_page.end == made.range.end && fetched <= made.range.size();
  // A program that wrote anything else loses its offered events.
  return is_plausible ? fetched : made.range.size();
}

void HostEventOffers::Report(Made& made, size_t count) {
  const GroupId group = processes_.Find(made.process)->group;
  for (size_t i = 0; i < count; i++) {
    made.range.first++;
    cm_.ReportFront(group, made.channel);
  }
}

void HostEventOffers::RemoveEmpty() {
  std::erase_if(made_, [](const Made& made) { return made.range.size() == 0; });
}

HostEventOffers::Made* HostEventOffers::Find(uint32_t channel) {
  const auto found = std::ranges::find(made_, channel, &Made::channel);
  return found == made_.end() ? nullptr : &*found;
}

void HostEventOffers::SettleMade() {
  bool is_changed = false;
  for (Made& made : made_) {
    const size_t fetched = Fetched(made, PageOf(made.process).Range());
    Report(made, fetched);
    is_changed |= fetched > 0;
  }
  if (!is_changed) return;
  RemoveEmpty();
  cm_.ShowEvents();
}

template <class Next>
void HostEventOffers::Replace(Made& made, const Next& next) {
  OfferedEvents& page = PageOf(made.process);
  OfferedRange in_page = page.Range();
  // Each failure means that the program has fetched another event, or has written nonsense.
  for (size_t tries = 0; tries <= OfferedEvents::kSlots; tries++) {
    const size_t fetched = Fetched(made, in_page);
    OfferedRange left = made.range;
    left.first = static_cast<uint16_t>(left.first + fetched);
    if (left.size() == 0) break;
    const OfferedRange replaced = next(left);
    if (!page.Change(in_page, replaced)) continue;
    for (uint16_t number = left.first; number != replaced.first; number++) page.Free(number);
    for (uint16_t number = replaced.end; number != left.end; number++) page.Free(number);
    Report(made, fetched);
    made.range = replaced;
    return;
  }
  Report(made, made.range.size());
}

size_t HostEventOffers::Offered(uint32_t channel) const {
  const auto found = std::ranges::find(made_, channel, &Made::channel);
  return found == made_.end() ? 0 : found->range.size();
}

void HostEventOffers::Withdraw(uint32_t channel, size_t from_place) {
  Made* const made = Find(channel);
  if (made == nullptr || from_place >= made->range.size()) return;
  const auto end = static_cast<uint16_t>(made->range.first + from_place);
  Replace(*made, [&](OfferedRange left) {
    const auto kept = static_cast<uint16_t>(end - left.first);
    left.generation = ++last_generation_;
    left.end = kept <= left.size() ? end : left.first;
    return left;
  });
  RemoveEmpty();
}

void HostEventOffers::BeforeFetch(uint32_t channel) {
  Made* const made = Find(channel);
  if (made == nullptr) return;
  Replace(*made, [](OfferedRange left) {
    left.first++;
    return left;
  });
  RemoveEmpty();
}

void HostEventOffers::WithdrawAll() {
  while (!made_.empty()) Withdraw(made_.back().channel, 0);
}

void HostEventOffers::Forget(ProcessId process) {
  const auto known = fetches_.find(process);
  if (known == fetches_.end()) return;
  Withdraw(known->second.channel, 0);
  const auto on_channel = by_channel_.find(known->second.channel);
  if (on_channel != by_channel_.end() && on_channel->second == process) {
    by_channel_.erase(on_channel);
  }
  fetches_.erase(known);
}

bool HostEventOffers::HasRoomForOne(ProcessId process, uint32_t channel) {
  const auto made = std::ranges::find(made_, process, &Made::process);
  if (made == made_.end()) return made_.size() < kMaxProcesses && PageOf(process).HasRoomFor(0);
  return made->channel == channel && made->range.size() < OfferedEvents::kSlots &&
         PageOf(process).HasRoomFor(made->range.end);
}

void HostEventOffers::Add(ProcessId process, const Fetch& fetch, const Reply& reply) {
  OfferedEvents& page = PageOf(process);
  auto made = std::ranges::find(made_, process, &Made::process);
  if (made == made_.end()) {
    const OfferedRange none{++last_generation_, 0, 0};
    page.Begin(none.generation, fetch.channel, Load<SequenceIn>(fetch.body, 0).devices);
    made = made_.insert(made_.end(), Made{process, fetch.channel, none});
  }
  page.Write(made->range.end, reply.body);
  // The program may take events meanwhile.
  OfferedRange in_page = page.Range();
  for (size_t tries = 0; tries <= OfferedEvents::kSlots; tries++) {
    OfferedRange more = in_page;
    more.end++;
    if (page.Change(in_page, more)) break;
  }
  made->range.end++;
}

void HostEventOffers::Offer(uint32_t channel) {
  const auto known = by_channel_.find(channel);
  if (known == by_channel_.end() || !may_offer_()) return;
  const ProcessId process = known->second;
  const Fetch& fetch = fetches_.at(process);
  const GroupId group = processes_.Find(process)->group;
  while (HasRoomForOne(process, channel)) {
    const cm::PendingEvent* const event = cm_.EventAt(group, channel, Offered(channel));
    if (event == nullptr) return;
    const Reply reply = FetchAhead(process, fetch, *event);
    Add(process, fetch, reply);
  }
}

Reply HostEventOffers::FetchAhead(ProcessId process, const Fetch& fetch,
                                  const cm::PendingEvent& event) {
  const ConnectedProcess& caller = *processes_.Find(process);
  const Maker maker{process, caller.forks()};
  const auto call = [&](CallOp op, std::span<const std::byte> message) {
    const auto body = message.subspan(sizeof(CallHeader));
    const auto get_event = static_cast<uint32_t>(CallOp::kCmCommand) + RDMA_USER_CM_CMD_GET_EVENT;
    if (op != CallOp{get_event}) return calls_.Call({}, caller.group, maker, op, body);
    Reply reply;
    reply.body.assign(std::as_bytes(std::span(&event.response, 1)));
    return reply;
  };
  const auto find_id = [&](uint32_t channel, uint32_t id) {
    return cm_.FindId(caller.group, channel, id);
  };
  return RunSequence(fetch.body, {[] { return true; }, std::ref(call), std::ref(find_id)});
}

}  // namespace rdmaemu
