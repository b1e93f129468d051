#include "emulator/transport/packet_runs.h"

#include "emulator/transport/psn.h"

namespace rdmaemu::transport {

size_t RunLength(std::span<const wire::Packet> packets) {
  const wire::PacketHeaders& first = packets[0].headers;
  const wire::OpcodeInfo& kind = first.info();
  if (first.transport != wire::TransportClass::kRc || !kind.payload) return 1;
  size_t count = 1;
  for (; count < packets.size(); ++count) {
    const wire::Packet& before = packets[count - 1];
    const wire::PacketHeaders& next = packets[count].headers;
    const wire::OpcodeInfo& before_info = before.headers.info();
    const wire::OpcodeInfo& info = next.info();
    if (before_info.last || before_info.only || before.headers.ack_request ||
        before.headers.solicited || before.payload.size() != packets[0].payload.size()) {
      break;
    }
    if (next.transport != first.transport || info.first || info.only || info.send != kind.send ||
        info.write != kind.write || info.read != kind.read || info.atomic || info.ack ||
        (info.write && info.imm) ||  // takes a receive, which the packets before must not
        next.destination_qpn != first.destination_qpn || next.pkey != first.pkey ||
        next.psn != PsnAdd(before.headers.psn, 1)) {
      break;
    }
  }
  return count;
}

std::optional<std::span<const std::byte>> Joined(std::span<const wire::Packet> packets) {
  const std::byte* const begin = packets[0].payload.data();
  size_t bytes = 0;
  for (const wire::Packet& packet : packets) {
    if (packet.payload.data() != begin + bytes) return std::nullopt;
    bytes += packet.payload.size();
  }
  return std::span(begin, bytes);
}

}  // namespace rdmaemu::transport
