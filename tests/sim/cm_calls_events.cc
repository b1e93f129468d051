// The events of CmCalls' programs, and the next calls that follow from them.
#include <algorithm>

#include "emulator/base/cm_event_names.h"
#include "emulator/base/nothing_queued.h"
#include "tests/sim/cm_calls.h"

namespace rdmaemu::sim {

void CmCalls::Drain(Caller& caller) {
  for (Id& id : ids_) id.waited = 0;
  for (uint32_t i = 0; i < kChannels; i++) {
    const Channel& channel = caller.channels[i];
    rdma_ucm_event_resp event{};
    while (caller.machine->counters.Take(channel.counter)) {
      event = {};
      const int error = caller.process->FetchEvent(channel.handle, event);
      if (error != 0) {
        world_.verdict().Complain("cm", caller.name + ": its channel is readable, and errno " +
                                            std::to_string(error) + " says there is no event");
        return;
      }
      Happened(caller, i, event);
    }
    // The call wakes up the host. Once the host has worked, its callers poll again.
    if (calm_) continue;
    if (caller.process->FetchEvent(channel.handle, event) != kNothingQueued) {
      world_.verdict().Complain("cm", caller.name + ": an event, and its channel is not readable");
    }
  }
  const MachineDevices& devices = devices_.at(caller.machine);
  caller.changes_seen = devices.changes();
  caller.removals_seen = devices.removals();
}

void CmCalls::Happened(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event) {
  const auto kind = static_cast<CmEventKind>(event.event);
  world_.tally().Count(std::string("api.event.") + CmEventName(event.event));
  if (event.uid >= kJoinUid) return GroupHappened(caller, channel, event);
  if (event.uid == 0 || event.uid > ids_.size() || ids_[event.uid - 1].caller != &caller) {
    return world_.verdict().Complain("cm", caller.name + ": an event of nobody's id");
  }
  Id& id = ids_[event.uid - 1];
  if (id.channel != channel) {
    world_.verdict().Complain("cm", NameOf(id) + ": an event on a channel that it has left");
  }
  if (kind == CmEventKind::kConnectRequest) return Requested(caller, channel, event);
  if (event.id != id.handle) {
    return world_.verdict().Complain(
        "cm", NameOf(id) + ": an event of id " + std::to_string(event.id) + " has its uid");
  }
  const auto status = static_cast<int32_t>(event.status);
  if (kind == CmEventKind::kRejected) {
    world_.tally().Count("api.rejected." + std::to_string(event.status));
  }
  const bool datagram = id.datagram && kind == CmEventKind::kEstablished;
  const uint8_t* bytes = datagram ? event.param.ud.private_data : event.param.conn.private_data;
  const size_t length =
      datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  Say(id, std::string("hears ") + CmEventName(event.event) + ", status " + std::to_string(status));
  if (causes_.CouldBeStale(id.number)) model_.MayBeStale(id.number);
  model_.Event(id.number, kind, status, caller.number * kChannels + channel);
  causes_.Event(id.number, kind, status, {bytes, length});
  switch (kind) {
    case CmEventKind::kAddrResolved:
      id.next = id.datagram && world_.random().Below(3) == 0 ? CmApi::kJoin
                : world_.random().Below(8) == 0              ? CmApi::kSetPath
                                                             : CmApi::kResolveRoute;
      return;
    case CmEventKind::kAddrChange:
      return;
    case CmEventKind::kRouteResolved:
      id.next = CmApi::kConnect;
      return;
    case CmEventKind::kConnectResponse:
      if (length >= sizeof id.partner) std::memcpy(&id.partner, bytes, sizeof id.partner);
      id.next = CmApi::kEstablish;
      return;
    case CmEventKind::kEstablished:
    case CmEventKind::kDisconnected:
      id.next = CmApi::kDisconnect;
      return;
    default:
      id.next = CmApi::kDestroy;
      return;
  }
}

void CmCalls::Requested(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event) {
  Id& listener = ids_[event.uid - 1];
  if (++listener.waited > listener.backlog && listener.backlog != 0) {
    world_.verdict().Complain("cm", NameOf(listener) + ": more requests than its backlog of " +
                                        std::to_string(listener.backlog));
  }
  for (const Id& other : ids_) {
    if (other.caller == &caller && other.handle == event.id) {
      return world_.verdict().Complain("cm", NameOf(other) + ": it comes with a request again");
    }
  }
  Id& id = Remember(caller, event.id, channel, listener.port_space, listener.datagram);
  id.ipv6 = listener.ipv6;
  id.next = world_.random().Below(5) == 0 ? CmApi::kReject : CmApi::kAccept;
  const uint8_t* bytes = id.datagram ? event.param.ud.private_data : event.param.conn.private_data;
  const size_t length =
      id.datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  uint32_t active = 0;
  if (length >= sizeof active) std::memcpy(&active, bytes, sizeof active);
  Say(id, "comes with a request of #" + std::to_string(active));
  model_.Requested(listener.number, id.number, NameOf(id), id.datagram);
  causes_.Requested(listener.number, id.number, NameOf(id), active, {bytes, length});
  if (id.qpn != 0x10000 + id.number) causes_.MayBeStale(id.number);
  id.partner = active;
  FindDevice(id, active > 0 && active <= ids_.size() ? &ids_[active - 1] : nullptr);
}

void CmCalls::CalmDown() {
  calm_ = true;
  for (const auto& machine : world_.machines()) Harvest(*machine);
}

void CmCalls::Harvest(Machine& machine) {
  if (!calm_) return;
  for (Caller& caller : callers_) {
    if (caller.machine == &machine && caller.process->Runs()) Drain(caller);
  }
}

bool CmCalls::IsWaiting() const {
  return std::ranges::any_of(ids_, [this](const Id& id) {
    return !id.ended && id.caller->process->Runs() && model_.IsWaiting(id.number);
  });
}

// Sixteen sends, each of which an MRA may extend to its service timeout (IBTA 12.9.8.7). They count
// once for the request, once for the reply and once for the disconnect.
Duration CmCalls::Bound() {
  constexpr auto kSend = std::chrono::milliseconds(6144);
  constexpr auto kMra = std::chrono::milliseconds(65536 + 4096);
  return 3 * 16 * (kSend + kMra);
}

}  // namespace rdmaemu::sim
