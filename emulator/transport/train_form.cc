#include "emulator/transport/train_form.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/transport/packets_of.h"

namespace rdmaemu::transport {
namespace {

// Precedes the headers.
struct Prefix {
  uint32_t packets;
  uint32_t payload_bytes;
  uint16_t mtu_bytes;
  uint8_t begins, ends;
};
static_assert(sizeof(Prefix) + wire::kMaxHeaderBytes == kMaxFormHeadBytes);

// Returns true if a message of this kind may have several packets.
bool MayBeCut(const wire::PacketHeaders& headers) {
  return OperationAt(headers.operation, true, false) != headers.operation &&
         headers.transport != wire::TransportClass::kUd;
}

bool IsPossible(const Train& train) {
  const wire::OpcodeInfo& info = train.info();
  const uint64_t bytes = train.length();
  if (WholeOperation(train.headers.operation) != train.headers.operation ||
      train.headers.destination_qpn == wire::kGsiQpn || (!info.payload && bytes > 0)) {
    return false;
  }
  if (train.packets == 0 || train.mtu_bytes == 0 || train.mtu_bytes > wire::kMaxMtuBytes ||
      bytes > uint64_t{train.packets} * train.mtu_bytes) {
    return false;
  }
  if (train.is_one_packet()) return true;
  if (!MayBeCut(train.headers) || bytes <= uint64_t{train.packets - 1} * train.mtu_bytes) {
    return false;
  }
  return train.ends || bytes == uint64_t{train.packets} * train.mtu_bytes;
}

}  // namespace

bool HasForm(const Train& train) {
  return train.length() <= kMaxFormPayloadBytes && IsPossible(train);
}

size_t FormBytes(const Train& train) {
  return sizeof(Prefix) + train.info().header_bytes + train.length();
}

std::span<std::byte> EmitFormHead(const Train& train, std::span<std::byte> form) {
  const Prefix prefix{.packets = train.packets,
                      .payload_bytes = static_cast<uint32_t>(train.length()),
                      .mtu_bytes = static_cast<uint16_t>(train.mtu_bytes),
                      .begins = train.begins,
                      .ends = train.ends};
  std::memcpy(form.data(), &prefix, sizeof prefix);
  const size_t header_bytes = wire::EmitHeaders(train.headers, form.subspan(sizeof prefix));
  return form.subspan(sizeof prefix + header_bytes);
}

size_t FormHeadBytes(std::span<const std::byte> form) {
  Train train;
  return ParseForm({}, form, train) ? form.size() - train.bytes.size() : 0;
}

bool ParseForm(const wire::UdpFlow& flow, std::span<const std::byte> form, Train& train) {
  std::array<std::byte, kMaxFormHeadBytes> head;
  const size_t head_bytes = std::min(form.size(), head.size());
  std::copy_n(form.begin(), head_bytes, head.begin());
  Prefix prefix;
  if (head_bytes < sizeof prefix) return false;
  std::memcpy(&prefix, head.data(), sizeof prefix);
  if (wire::ParseHeaders(std::span(head).first(head_bytes).subspan(sizeof prefix), train.headers)) {
    return false;
  }
  const size_t payload_at = sizeof prefix + train.info().header_bytes;
  if (prefix.payload_bytes > kMaxFormPayloadBytes ||
      form.size() != payload_at + prefix.payload_bytes || prefix.begins > 1 || prefix.ends > 1) {
    return false;
  }
  train.source = flow.source;
  train.destination = flow.destination;
  train.begins = prefix.begins != 0;
  train.ends = prefix.ends != 0;
  train.packets = prefix.packets;
  train.mtu_bytes = prefix.mtu_bytes;
  train.is_bytes = true;
  train.bytes = form.subspan(payload_at);
  train.pieces.Clear();
  return IsPossible(train);
}

void AppendPackets(const Train& train, std::vector<wire::Packet>& packets) {
  for (uint32_t i = 0; i < train.packets; i++) {
    const uint64_t bytes = PayloadOf(train, i);
    packets.push_back(
        {HeadersOf(train, i, bytes), train.bytes.subspan(uint64_t{i} * train.mtu_bytes, bytes)});
  }
}

void ForEachDatagram(const Train& train,
                     const std::function<void(std::span<const std::byte>)>& datagram) {
  std::vector<std::byte> buffer;
  for (uint32_t i = 0; i < train.packets; i++) {
    const uint64_t bytes = PayloadOf(train, i);
    const wire::PacketHeaders headers = HeadersOf(train, i, bytes);
    buffer.assign(DatagramBytes(headers.info(), bytes), std::byte{0});
    Fill(headers, train.bytes.subspan(uint64_t{i} * train.mtu_bytes, bytes), buffer);
    wire::SealPacket(FlowOf(train), buffer);
    datagram(buffer);
  }
}

uint64_t DatagramBytesOf(const Train& train) {
  if (train.is_one_packet()) return DatagramBytes(train.info(), train.length());
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < train.packets; i++) {
    const wire::OpcodeInfo& info = wire::Opcode(train.headers.transport, OperationOf(train, i));
    bytes += DatagramBytes(info, PayloadOf(train, i));
  }
  return bytes;
}

}  // namespace rdmaemu::transport
