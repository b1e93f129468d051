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

void HostEventOffers::SettleMade() {
  bool is_changed = false;
  for (size_t i = made_.size(); i-- > 0;) {
    if (PageOf(made_[i].process).IsOffered(made_[i].word)) continue;
    Report(i);
    is_changed = true;
  }
  if (is_changed) cm_.ShowEvents();
}

void HostEventOffers::Report(size_t index) {
  const Made taken = made_[index];
  made_.erase(made_.begin() + static_cast<ptrdiff_t>(index));
  cm_.ReportFront(processes_.Find(taken.process)->group, taken.channel);
}

void HostEventOffers::WithdrawMade(size_t index) {
  const Made& offer = made_[index];
  if (!PageOf(offer.process).Withdraw(offer.word)) return Report(index);
  made_.erase(made_.begin() + static_cast<ptrdiff_t>(index));
}

void HostEventOffers::Withdraw(uint32_t channel) {
  for (size_t i = made_.size(); i-- > 0;) {
    if (made_[i].channel == channel) WithdrawMade(i);
  }
}

void HostEventOffers::WithdrawAll() {
  while (!made_.empty()) WithdrawMade(made_.size() - 1);
}

void HostEventOffers::Forget(ProcessId process) {
  const auto known = fetches_.find(process);
  if (known == fetches_.end()) return;
  Withdraw(known->second.channel);
  const auto on_channel = by_channel_.find(known->second.channel);
  if (on_channel != by_channel_.end() && on_channel->second == process) {
    by_channel_.erase(on_channel);
  }
  fetches_.erase(known);
}

bool HostEventOffers::HasOffer(ProcessId process) const {
  return std::ranges::any_of(made_, [&](const Made& made) { return made.process == process; });
}

void HostEventOffers::Offer(uint32_t channel) {
  const auto known = by_channel_.find(channel);
  if (known == by_channel_.end() || made_.size() == kMaxOffers || !may_offer_()) return;
  const ProcessId process = known->second;
  EventOffer& offer = PageOf(process);
  if (HasOffer(process) || !offer.MayBegin()) return;
  const ConnectedProcess& caller = *processes_.Find(process);
  const Fetch& fetch = fetches_.at(process);
  const Reply reply = FetchAhead(caller, {process, caller.forks()}, fetch);
  made_.push_back({process, channel,
                   offer.Publish(++last_number_, channel, Load<SequenceIn>(fetch.body, 0).devices,
                                 reply.body)});
}

Reply HostEventOffers::FetchAhead(const ConnectedProcess& process, const Maker& maker,
                                  const Fetch& fetch) {
  const auto call = [&](std::span<const std::byte> message) {
    const CallOp op{Load<CallHeader>(message, 0).op};
    const auto body = message.subspan(sizeof(CallHeader));
    const auto event = static_cast<uint32_t>(CallOp::kCmCommand) + RDMA_USER_CM_CMD_GET_EVENT;
    if (op != CallOp{event}) return calls_.Call({}, process.group, maker, op, body);
    const cm::PendingEvent* const front = cm_.FrontEvent(process.group, fetch.channel);
    if (front == nullptr) return FailedReply(kNothingQueued);
    const auto bytes = std::as_bytes(std::span(&front->response, 1));
    return Reply{.error = 0, .body = {bytes.begin(), bytes.end()}, .descriptors = {}};
  };
  const auto find_id = [&](uint32_t channel, uint32_t id) {
    return cm_.FindId(process.group, channel, id);
  };
  return RunSequence(fetch.body, {[] { return true; }, std::ref(call), std::ref(find_id)});
}

}  // namespace rdmaemu
