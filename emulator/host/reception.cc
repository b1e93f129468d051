#include "emulator/host/reception.h"

#include <optional>

#include "emulator/transport/train_form.h"

namespace rdmaemu {

void Reception::Receive(Time now, const wire::UdpFlow& from,
                        std::span<const std::span<const std::byte>> udp_payloads,
                        const NetAddress* by, WireForm form) {
  // A rule may remove the address while the host receives its packets. The network then closes
  // the port, which may own `from` and `by`.
  const wire::UdpFlow flow = from;
  const std::optional<NetAddress> at = by == nullptr ? std::nullopt : std::optional(*by);
  for (size_t taken = 0; taken < udp_payloads.size();) {
    const auto rest = udp_payloads.subspan(taken);
    const NetAddress* const own = at ? &*at : nullptr;
    if (form == WireForm::kPermitOffers) {
      TakeOffer(now, flow, udp_payloads[taken++]);
      continue;
    }
    if (form != WireForm::kDatagrams) {
      taken += ReceiveTrains(now, flow, rest, own, form == WireForm::kPlacedTrains);
      continue;
    }
    if (parts_.stands_still()) return Keep(flow, rest, own);
    taken += ReceiveSome(now, flow, rest, own);
  }
}

bool Reception::PassesDoor(Time now, const wire::UdpFlow& flow, const wire::Packet& packet,
                           std::span<const std::byte> bytes, const NetAddress* at) {
  if (!parts_.faults.flags().packets) return true;
  return parts_.doors.packets.Passes(
      now,
      {fault::Direction::kReceive, packet.headers, flow.source, flow.destination, 0,
       packet.payload.size(), packet.headers.destination_qpn, false, at},
      [&] { return std::vector<std::byte>(bytes.begin(), bytes.end()); });
}

void Reception::ReceiveKept(Time now, const PacketFaults::Kept& kept, const wire::Packet& packet) {
  if (kept.stays) return parts_.engine.ReceiveKept(now, kept.flow, packet);
  parts_.engine.Receive(now, kept.flow, {&packet, 1}, kept.at ? &*kept.at : nullptr);
}

void Reception::Keep(const wire::UdpFlow& flow,
                     std::span<const std::span<const std::byte>> udp_payloads,
                     const NetAddress* at) {
  if (!parts_.pause.active()) return;
  for (const std::span<const std::byte> each : udp_payloads) {
    if (!parts_.pause.Keep(flow, each, at)) parts_.faults.counters().paused_datagrams_full++;
  }
}

size_t Reception::ReceiveSome(Time now, const wire::UdpFlow& flow,
                              std::span<const std::span<const std::byte>> udp_payloads,
                              const NetAddress* at) {
  parts_.faults.SetNow(now);
  const transport::DoorFlags& flags = parts_.faults.flags();
  const bool is_multicast = flow.destination.IsMulticast();
  const bool is_ours = is_multicast || parts_.verbs.IsLocal(flow.destination);
  const bool arrives = is_multicast || parts_.verbs.Carries(flow.destination);
  received_.clear();
  size_t taken = 0;
  for (const std::span<const std::byte> udp_payload : udp_payloads) {
    taken++;
    wire::Packet& packet = received_.emplace_back();
    if (!parts_.fabric.CheckReceived(now, flow, udp_payload, packet)) {
      received_.pop_back();
    } else if (!is_ours) {
      received_.pop_back();
      parts_.fabric.counters().dropped_not_ours++;
    } else if (!arrives) {
      received_.pop_back();
      parts_.fabric.counters().dropped_no_link++;
    } else if (packet.headers.destination_qpn != wire::kGsiQpn) {
      if (!PassesDoor(now, flow, packet, udp_payload, at)) received_.pop_back();
      if (flags.completions || flags.packets) break;
    } else {
      const wire::Packet mad = packet;
      received_.pop_back();
      // The effects of this packet must be between those of the packets before and after it.
      parts_.engine.Receive(now, flow, received_, at);
      received_.clear();
      ReceiveMad(now, flow, mad);
      if (parts_.faults.HasDeeds()) break;
    }
  }
  parts_.engine.Receive(now, flow, received_, at);
  received_.clear();
  parts_.do_deeds(now);
  return taken;
}

size_t Reception::ReceiveTrains(Time now, const wire::UdpFlow& flow,
                                std::span<const std::span<const std::byte>> forms,
                                const NetAddress* at, bool are_placed) {
  parts_.faults.SetNow(now);
  if (SeesPackets()) {
    ReceiveAsDatagrams(now, flow, forms.front(), at, are_placed);
    return 1;
  }
  size_t taken = 0;
  uint64_t packets = 0;
  const auto next = [&]() -> transport::Train* {
    while (taken < forms.size() && packets < kMaxPacketsOfTrains) {
      transport::Train* const train = parts_.fabric.CheckReceivedForm(flow, forms[taken++]);
      if (train == nullptr) continue;
      packets += train->packets;
      return train;
    }
    return nullptr;
  };
  const auto drop = [&](uint64_t& counter) {
    while (const transport::Train* const train = next()) counter += train->packets;
  };
  if (!parts_.verbs.IsLocal(flow.destination)) {
    drop(parts_.fabric.counters().dropped_not_ours);
  } else if (!parts_.verbs.Carries(flow.destination)) {
    drop(parts_.fabric.counters().dropped_no_link);
  } else {
    parts_.engine.ReceiveTrains(now, next, are_placed);
  }
  parts_.do_deeds(now);
  return taken;
}

void Reception::TakeOffer(Time now, const wire::UdpFlow& flow, std::span<const std::byte> bytes) {
  parts_.faults.SetNow(now);
  const std::optional<transport::PermitOffer> offer = transport::PermitOffer::Parse(bytes);
  if (!offer || SeesPackets() || !parts_.verbs.IsLocal(flow.destination)) return;
  if (offer->is_lane != 0) {
    return parts_.engine.TakeLaneOffer(now, flow, *offer, [this](const JobReference& lane) {
      return parts_.network.OpenLane(lane, parts_.shared_memory);
    });
  }
  parts_.engine.TakeOffer(
      flow, *offer, [this](const JobReference& page) { return parts_.network.OpenJobPage(page); });
}

bool Reception::SeesPackets() const {
  const transport::DoorFlags& flags = parts_.faults.flags();
  return parts_.stands_still() || flags.packets || flags.completions || parts_.fabric.captures();
}

Naming Reception::Direct(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                         const std::shared_ptr<DirectForm>& direct) {
  parts_.faults.SetNow(now);
  transport::Train train;
  if (SeesPackets() || !transport::ParseForm(flow, form, train) ||
      !parts_.verbs.IsLocal(flow.destination) || !parts_.verbs.Carries(flow.destination)) {
    return Naming::kNever;
  }
  return parts_.engine.Direct(train, direct);
}

void Reception::ReceiveAsDatagrams(Time now, const wire::UdpFlow& flow,
                                   std::span<const std::byte> form, const NetAddress* at,
                                   bool is_placed) {
  transport::Train train;
  if (!transport::ParseForm(flow, form, train)) {
    (void)parts_.fabric.CheckReceivedForm(flow, form);  // counts it
    return;
  }
  std::vector<std::byte> payload;
  if (is_placed) {
    payload.resize(train.length());
    if (!parts_.engine.ReadPlaced(train, payload)) return;  // the program has ended
    train.bytes = payload;
  }
  transport::ForEachDatagram(train, [&](std::span<const std::byte> datagram) {
    Receive(now, flow, {&datagram, 1}, at, WireForm::kDatagrams);
  });
}

void Reception::ReceiveMad(Time now, const wire::UdpFlow& flow, const wire::Packet& packet) {
  const auto message = parts_.cm_transport.CheckReceived(flow, packet);
  if (!message) return;
  const cm::CmRoute route{flow.source, flow.destination, 0, packet.headers.pkey};
  (void)parts_.doors.cm.Pass(now, fault::Direction::kReceive, route, *message);
}

}  // namespace rdmaemu
