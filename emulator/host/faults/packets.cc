#include "emulator/host/faults/packets.h"

#include <algorithm>

#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

uint64_t WireBytes(const transport::PassingPacket& packet) {
  return packet.headers.info().header_bytes + packet.payload_bytes + packet.headers.pad_bytes +
         wire::kIcrcBytes;
}

}  // namespace

bool PacketFaults::Passes(Time now, const transport::PassingPacket& packet,
                          const transport::PacketBytes& bytes) {
  const Flow flow{packet.direction, packet.source, packet.destination,
                  packet.headers.destination_qpn, packet.stays};
  if (faults_.Watches(fault::Point::kPacket)) {
    if (const fault::Rule* const rule = Decide(now, packet, flow)) {
      if (!Do(now, *rule, packet, flow, bytes)) return false;
    }
  }
  if (!PassesLink(now, packet, bytes)) return false;
  Overtake(now, flow);
  return true;
}

const fault::Rule* PacketFaults::Decide(Time now, const transport::PassingPacket& packet,
                                        const Flow& flow) {
  const bool sends = packet.direction == fault::Direction::kSend;
  const NetAddress& local = sends ? packet.source : packet.destination;
  const QueuePair* const qp = verbs_.FindQp(local, packet.qpn);
  const std::string subject = PacketSubject(packet.headers);
  const Flow& numbered = numbers_.size() < kMaxFlows || numbers_.contains(flow) ? flow : Flow{};
  fault::Moment moment{};
  moment.point = fault::Point::kPacket;
  moment.now = now;
  moment.subject = subject;
  moment.direction = packet.direction;
  moment.local = local;
  moment.remote = sends ? packet.destination : packet.source;
  moment.qp = packet.qpn;
  moment.bytes = packet.payload_bytes;
  moment.index = ++numbers_[numbered];
  FaultTarget target;
  if (qp != nullptr) {
    moment.program = programs_.ProgramOf(qp->group());
    moment.device = qp->device->name;
    moment.qp_order = qp->order;
    target = {qp->group(), qp->handle};
  }
  return faults_.Decide(moment, ProcessId::kNone, target);
}

bool PacketFaults::Do(Time now, const fault::Rule& rule, const transport::PassingPacket& packet,
                      const Flow& flow, const transport::PacketBytes& bytes) {
  const fault::Action& action = rule.action;
  if (const auto* duplicate = std::get_if<fault::Duplicate>(&action)) {
    for (uint32_t i = 0; i < duplicate->copies; i++) Keep(now, KeptOf(packet, bytes));
    return true;
  }
  if (const auto* delay = std::get_if<fault::Delay>(&action)) {
    Keep(now + delay->time, KeptOf(packet, bytes));
  } else if (const auto* reorder = std::get_if<fault::Reorder>(&action)) {
    Overtaken waits{flow, reorder->packets, KeptOf(packet, bytes)};
    if (Admit(waits.kept)) overtaken_.Put(now + kReorderWait, std::move(waits));
  } else if (std::holds_alternative<fault::Hold>(action)) {
    Hold(rule.name, KeptOf(packet, bytes));
  } else if (std::holds_alternative<fault::Corrupt>(action)) {
    Damage(now, KeptOf(packet, bytes));
  }
  return false;
}

// Makes the packet fail the check of its ICRC, on this host or at its destination.
void PacketFaults::Damage(Time now, Kept kept) {
  if (!kept.leaves) {
    exit_.CountBadIcrc();
  } else if (!kept.bytes.empty()) {
    kept.bytes.back() ^= std::byte{0x01};
    exit_.SendSealed(now, kept.flow, kept.traffic_class, kept.bytes);
  }
}

bool PacketFaults::PassesLink(Time now, const transport::PassingPacket& packet,
                              const transport::PacketBytes& bytes) {
  if (packet.stays && packet.direction == fault::Direction::kReceive) return true;
  const LinkFaults::Verdict verdict =
      links_.Pass(now, packet.direction, packet.source, packet.destination, WireBytes(packet));
  if (verdict.until) Keep(*verdict.until, KeptOf(packet, bytes));
  if (!verdict.held_by.empty()) Hold(verdict.held_by, KeptOf(packet, bytes));
  return !verdict.is_lost && !verdict.until && verdict.held_by.empty();
}

PacketFaults::Kept PacketFaults::KeptOf(const transport::PassingPacket& packet,
                                        const transport::PacketBytes& bytes) {
  const wire::UdpFlow flow{packet.source, packet.destination, wire::kRoceUdpPort,
                           wire::kRoceUdpPort};
  const bool leaves = packet.direction == fault::Direction::kSend && !packet.stays;
  const bool sends = packet.direction == fault::Direction::kSend;
  return {flow,       packet.traffic_class,
          leaves,     packet.stays,
          bytes(),    sends ? packet.source : packet.destination,
          packet.qpn, packet.at == nullptr ? std::nullopt : std::optional(*packet.at)};
}

bool PacketFaults::Admit(const Kept& kept) {
  if (kept.bytes.empty()) return false;
  if (kept_.size() + overtaken_.size() >= kMaxKept ||
      kept_bytes_ + kept.bytes.size() > kMaxKeptBytes) {
    faults_.counters().kept_packets_full++;
    return false;
  }
  kept_bytes_ += kept.bytes.size();
  return true;
}

void PacketFaults::Keep(Time until, Kept kept) {
  if (Admit(kept)) kept_.Put(until, std::move(kept));
}

void PacketFaults::Hold(std::string_view rule, Kept kept) {
  if (Admit(kept)) kept_.PutHeld(rule, std::move(kept));
}

void PacketFaults::ForgetGone() {
  kept_.ForgetHeld([&](const Kept& each) {
    if (!IsGone(each)) return false;
    kept_bytes_ -= each.bytes.size();
    return true;
  });
}

bool PacketFaults::IsGone(const Kept& kept) {
  if (kept.local.IsMulticast()) {
    return verbs_.MulticastReceivers(kept.local, kept.at ? &*kept.at : nullptr).empty();
  }
  return verbs_.FindQp(kept.local, kept.qpn) == nullptr;
}

void PacketFaults::Overtake(Time now, const Flow& flow) {
  if (overtaken_.size() == 0) return;
  overtaken_.Hasten(now, [&](Overtaken& each) { return each.flow == flow && --each.by == 0; });
}

void PacketFaults::Expire(Time now) {
  overtaken_.Expire(now, [&](Overtaken due) { kept_.Put(now, std::move(due.kept)); });
  kept_.Expire(now, [&](const Kept& due) { Send(now, due); });
}

void PacketFaults::Send(Time now, const Kept& due) {
  kept_bytes_ -= due.bytes.size();
  if (due.leaves) {
    exit_.SendSealed(now, due.flow, due.traffic_class, due.bytes);
  } else if (const auto packet = wire::Parse(due.bytes)) {
    deliver_(now, due, *packet);
  }
}

}  // namespace rdmaemu
