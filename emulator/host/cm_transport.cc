#include "emulator/host/cm_transport.h"

#include <algorithm>

namespace rdmaemu {
namespace {

// Counts one message by its kind.
void Count(CmMessageCounts& counts, const wire::CmMessage& message) {
  uint64_t* const by_kind[] = {
#define RDMAEMU_CM_COUNTER(name) &counts.name,
      RDMAEMU_CM_COUNTERS(RDMAEMU_CM_COUNTER)
#undef RDMAEMU_CM_COUNTER
  };
  static_assert(std::variant_size_v<wire::CmBody> <= std::size(by_kind));
  ++*by_kind[message.body.index()];
}

}  // namespace

void HostCmTransport::CountReceived(const cm::CmRoute& route, const wire::CmMessage& message) {
  Device* const device = addresses_.DeviceAt(route.destination);
  if (device == nullptr) return;
  Count(device->cm_received, message);
  device->counters.rcvd_pkts++;  // a MAD is a SEND to QP 1
  device->counters.rdma_recvs++;
}

bool HostCmTransport::TakesPkey(const NetAddress& local, uint16_t pkey) const {
  const Device* const device = addresses_.DeviceAt(local);
  if (device == nullptr || device->pkeys.empty()) {
    return wire::PkeysMatch(Device::kDefaultPkey, pkey);
  }
  return std::ranges::any_of(device->pkeys,
                             [&](uint16_t entry) { return wire::PkeysMatch(entry, pkey); });
}

// RoCE paths use the default partition, even after its entry in the P_Key table was removed.
uint16_t HostCmTransport::PkeyOf(const cm::CmRoute& route) const {
  const Device* const device = addresses_.DeviceAt(route.source);
  if (device == nullptr) return Device::kDefaultPkey;
  const uint16_t partition = device->has_lids() ? route.pkey : Device::kDefaultPkey;
  return device->PkeyAt(device->FindPkey(partition).value_or(0));
}

Status HostCmTransport::Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
  const AddressTable::Row* const source = addresses_.Find(route.source);
  if (source == nullptr || source->owner->device == nullptr) return {};  // lost
  const HostDevice& from = *source->owner;
  if (from.IsDown()) {
    return from.config.profile.fails_sends_without_link ? Fail(ETIMEDOUT) : Status();
  }
  return faults_.Pass(now, fault::Direction::kSend, route, message);
}

void HostCmTransport::SendMessage(Time now, const cm::CmRoute& route,
                                  const wire::CmMessage& message) {
  const AddressTable::Row* const destination = addresses_.Find(route.destination);
  const uint16_t pkey = PkeyOf(route);
  if (Device* const device = addresses_.DeviceAt(route.source); device != nullptr) {
    Count(device->cm_sent, message);
    device->counters.sent_pkts++;  // a MAD is a SEND from QP 1
    device->counters.rdma_sends++;
  }
  if (destination == nullptr) {
    fabric_.SendMad(now, route, message, pkey);
  } else if (destination->owner->IsDown()) {
    return;
  } else if (TakesPkey(route.destination, pkey)) {
    fabric_.QueueLocal(now, route, message, pkey);
  } else {
    fabric_.counters().dropped_gsi_key++;
  }
}

std::optional<wire::CmMessage> HostCmTransport::CheckReceived(const wire::UdpFlow& flow,
                                                              const wire::Packet& packet) {
  FabricCounters& counters = fabric_.counters();
  const wire::PacketHeaders& headers = packet.headers;
  if (headers.transport != wire::TransportClass::kUd || headers.qkey != wire::kGsiQkey ||
      !TakesPkey(flow.destination, headers.pkey)) {
    counters.dropped_gsi_key++;
    return std::nullopt;
  }
  const auto message = wire::ParseCm(packet.payload);
  if (message) return *message;
  counters.dropped_unparsed_mad.at(static_cast<size_t>(message.error()))++;
  return std::nullopt;
}

}  // namespace rdmaemu
