#include "emulator/transport/packets_of.h"

#include <algorithm>
#include <cstring>

namespace rdmaemu::transport {

wire::UdpFlow FlowOf(const Train& train) {
  return {train.source, train.destination, wire::kRoceUdpPort, wire::kRoceUdpPort};
}

uint64_t PayloadOf(const Train& train, uint32_t index) {
  const uint64_t offset = uint64_t{index} * train.mtu_bytes;
  return std::min<uint64_t>(train.length() - offset, train.mtu_bytes);
}

wire::Operation OperationOf(const Train& train, uint32_t index) {
  return OperationAt(train.headers.operation, train.begins && index == 0,
                     train.ends && index + 1 == train.packets);
}

wire::PacketHeaders HeadersOf(const Train& train, uint32_t index, uint64_t payload_bytes) {
  const bool last = train.ends && index + 1 == train.packets;
  wire::PacketHeaders headers = train.headers;
  headers.operation = OperationOf(train, index);
  headers.psn = PsnAdd(train.headers.psn, index);
  headers.pad_bytes = PadOf(payload_bytes);
  headers.solicited = train.headers.solicited && last;
  headers.ack_request = train.headers.ack_request && index + 1 == train.packets;
  return headers;
}

std::span<std::byte> FillAround(const wire::PacketHeaders& headers, size_t payload_bytes,
                                std::span<std::byte> out) {
  const size_t length = wire::EmitHeaders(headers, out);
  std::memset(out.data() + length + payload_bytes, 0, headers.pad_bytes);
  return out.subspan(length, payload_bytes);
}

void Fill(const wire::PacketHeaders& headers, std::span<const std::byte> payload,
          std::span<std::byte> out) {
  const std::span<std::byte> room = FillAround(headers, payload.size(), out);
  if (!payload.empty()) std::memcpy(room.data(), payload.data(), payload.size());
}

}  // namespace rdmaemu::transport
