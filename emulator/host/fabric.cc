#include "emulator/host/fabric.h"

#include <algorithm>
#include <array>
#include <utility>

#include "emulator/transport/packets_of.h"
#include "emulator/transport/train_form.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {
namespace {

// BTH and DETH, the MAD, the data after the MAD, the ICRC.
constexpr size_t kMaxMadDatagram =
    wire::kMaxHeaderBytes + wire::kMadBytes + wire::kMaxMoreBytes + wire::kIcrcBytes;

wire::UdpFlow FlowOf(const cm::CmRoute& route) {
  return {route.source, route.destination, wire::kRoceUdpPort, wire::kRoceUdpPort};
}

}  // namespace

std::span<std::byte> Fabric::Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                      size_t bytes) {
  std::span<std::byte> room;
  AllocateRun(flow, traffic_class, {&bytes, 1}, {&room, 1});
  return room;
}

size_t Fabric::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                           std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
  const size_t count = network_.AllocateRun(flow, traffic_class, bytes, rooms);
  if (count == 0) counters_.dropped_network_full++;
  pending_flow_ = flow;
  pending_form_ = {};
  pending_.assign(rooms.begin(), rooms.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

std::optional<std::span<std::byte>> Fabric::AllocateForm(const transport::Train& train,
                                                         bool may_wait) {
  if (!sends_forms_ || captures()) return std::nullopt;
  const auto form = network_.AllocateForm(transport::FlowOf(train), train.traffic_class,
                                          transport::FormBytes(train), may_wait);
  pending_.clear();
  pending_form_ = {};
  if (form && !form->empty()) pending_form_ = {train.packets, transport::DatagramBytesOf(train)};
  return form;
}

void Fabric::CountExchanged(const Exchanged& exchanged) {
  counters_.datagrams_sent += exchanged.sent_packets;
  counters_.bytes_sent += exchanged.sent_bytes;
  counters_.datagrams_received += exchanged.received_packets;
  counters_.bytes_received += exchanged.received_bytes;
}

void Fabric::CountForm() {
  counters_.datagrams_sent += pending_form_.packets;
  counters_.bytes_sent += pending_form_.bytes;
  pending_form_ = {};
}

std::unique_ptr<UnfilledForm> Fabric::CommitUnfilled(Time, size_t payload_bytes) {
  CountForm();
  return network_.CommitUnfilled(payload_bytes);
}

void Fabric::Commit(Time now) {
  CountForm();
  for (const std::span<std::byte> datagram : pending_) {
    sent_icrc_.Seal(pending_flow_, datagram);
    counters_.datagrams_sent++;
    counters_.bytes_sent += datagram.size();
    if (trace_.wants_packets()) trace_.WritePacket(now, pending_flow_, datagram);
  }
  pending_.clear();
  network_.Commit();
}

void Fabric::SendSealed(Time now, const wire::UdpFlow& flow, uint8_t traffic_class,
                        std::span<const std::byte> datagram) {
  const std::span<std::byte> room = Allocate(flow, traffic_class, datagram.size());
  pending_.clear();
  if (room.size() != datagram.size()) return;
  std::copy(datagram.begin(), datagram.end(), room.begin());
  counters_.datagrams_sent++;
  counters_.bytes_sent += datagram.size();
  if (trace_.wants_packets()) trace_.WritePacket(now, flow, datagram);
  network_.Commit();
}

size_t Fabric::BuildMad(const wire::CmMessage& message, uint16_t pkey, std::span<std::byte> out) {
  wire::PacketHeaders headers;
  headers.transport = wire::TransportClass::kUd;
  headers.operation = wire::Operation::kSendOnly;
  headers.pkey = pkey;
  headers.destination_qpn = wire::kGsiQpn;
  headers.psn = gsi_psn_++ & wire::kPsnMask;
  headers.qkey = wire::kGsiQkey;
  headers.source_qpn = wire::kGsiQpn;
  const size_t header_bytes = wire::EmitHeaders(headers, out);
  wire::EmitCm(message, out.subspan(header_bytes).first<wire::kMadBytes>());
  const size_t mad_end = header_bytes + wire::kMadBytes;
  return mad_end + wire::EmitMore(message, out.subspan(mad_end)) + wire::kIcrcBytes;
}

void Fabric::SendMad(Time now, const cm::CmRoute& route, const wire::CmMessage& message,
                     uint16_t pkey) {
  std::array<std::byte, kMaxMadDatagram> bytes{};
  const size_t length = BuildMad(message, pkey, bytes);
  const std::span<std::byte> room = Allocate(FlowOf(route), route.traffic_class, length);
  if (room.size() != length) return;  // lost, as any packet may be: CM retransmits it
  std::copy_n(bytes.begin(), length, room.begin());
  Commit(now);
}

void Fabric::QueueLocal(Time now, const cm::CmRoute& route, const wire::CmMessage& message,
                        uint16_t pkey) {
  if (local_.size() >= kMaxLocalMessages) {
    counters_.dropped_gsi_queue++;
    return;
  }
  if (trace_.wants_packets()) {
    std::array<std::byte, kMaxMadDatagram> bytes{};
    const std::span<std::byte> datagram = std::span(bytes).first(BuildMad(message, pkey, bytes));
    wire::SealPacket(FlowOf(route), datagram);
    trace_.WritePacket(now, FlowOf(route), datagram);
  }
  local_.push_back({route, message});
}

bool Fabric::CheckReceived(Time now, const wire::UdpFlow& flow,
                           std::span<const std::byte> udp_payload, wire::Packet& packet) {
  counters_.datagrams_received++;
  counters_.bytes_received += udp_payload.size();
  if (trace_.wants_packets()) trace_.WritePacket(now, flow, udp_payload);
  if (!received_icrc_.Verify(flow, udp_payload)) {
    counters_.dropped_bad_icrc++;
    return false;
  }
  const auto error = wire::ParseInto(udp_payload, packet);
  if (error) counters_.dropped_unparsed.at(static_cast<size_t>(*error))++;
  return !error;
}

transport::Train* Fabric::CheckReceivedForm(const wire::UdpFlow& flow,
                                            std::span<const std::byte> form) {
  transport::Train& train = parsed_;
  if (!transport::ParseForm(flow, form, train)) {
    counters_.datagrams_received++;
    counters_.bytes_received += form.size();
    counters_.dropped_unparsed.at(static_cast<size_t>(wire::ParseError::kBadLength))++;
    return nullptr;
  }
  counters_.datagrams_received += train.packets;
  counters_.bytes_received += transport::DatagramBytesOf(train);
  return &train;
}

}  // namespace rdmaemu
