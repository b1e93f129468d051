// A train cut into packets: bytes for the sink, or for a capture of what never left the host. The
// payload is read from the program's memory in batches, because a call a packet costs more than
// the packet.
#include <algorithm>
#include <cstring>

#include "emulator/transport/core.h"
#include "emulator/verbs/device.h"

namespace rdmaemu::transport {
namespace {

constexpr uint64_t kReadBatchBytes = 64 * 1024;

wire::UdpFlow FlowOf(const Train& train) {
  return {train.source, train.destination, wire::kRoceUdpPort, wire::kRoceUdpPort};
}

uint64_t PayloadOf(const Train& train, uint32_t index) {
  const uint64_t offset = uint64_t{index} * train.mtu_bytes;
  return std::min<uint64_t>(train.length() - offset, train.mtu_bytes);
}

wire::PacketHeaders HeadersOf(const Train& train, uint32_t index, uint64_t payload_bytes) {
  const bool first = train.begins && index == 0;
  const bool last = train.ends && index + 1 == train.packets;
  wire::PacketHeaders headers = train.headers;
  headers.operation = OperationAt(train.headers.operation, first, last);
  headers.psn = PsnAdd(train.headers.psn, index);
  headers.pad_bytes = static_cast<uint8_t>(-payload_bytes & 3);
  headers.solicited = train.headers.solicited && last;
  headers.ack_request = train.headers.ack_request && index + 1 == train.packets;
  return headers;
}

size_t DatagramBytes(const wire::PacketHeaders& headers, uint64_t payload_bytes) {
  return headers.info().header_bytes + payload_bytes + headers.pad_bytes + wire::kIcrcBytes;
}

// Writes everything but the ICRC.
void Fill(const wire::PacketHeaders& headers, std::span<const std::byte> payload,
          std::span<std::byte> out) {
  std::array<std::byte, wire::kMaxHeaderBytes> header_bytes;
  const size_t length = wire::EmitHeaders(headers, header_bytes);
  std::memcpy(out.data(), header_bytes.data(), length);
  if (!payload.empty()) std::memcpy(out.data() + length, payload.data(), payload.size());
  std::memset(out.data() + length + payload.size(), 0, headers.pad_bytes);
}

// Calls packet(headers, payload) for each packet of the train, in order, until one answers false.
template <class PacketFunction>
Status Cut(Memory& memory, const Train& train, std::vector<std::byte>& buffer,
           PacketFunction packet) {
  const uint32_t batch =
      static_cast<uint32_t>(std::max<uint64_t>(1, kReadBatchBytes / train.mtu_bytes));
  Pieces rest;
  if (!train.is_bytes) rest = train.pieces;
  for (uint32_t begin = 0; begin < train.packets; begin += batch) {
    const uint32_t end = std::min(train.packets, begin + batch);
    const uint64_t offset = uint64_t{begin} * train.mtu_bytes;
    const uint64_t bytes =
        std::min<uint64_t>(train.length() - offset, uint64_t{end - begin} * train.mtu_bytes);
    std::span<const std::byte> payload;
    if (train.is_bytes) {
      payload = train.bytes.subspan(offset, bytes);
    } else if (bytes > 0) {
      if (buffer.size() < bytes) buffer.resize(kReadBatchBytes);
      Pieces now = rest;
      now.Truncate(bytes);
      const std::span<std::byte> room = std::span(buffer).first(bytes);
      if (const Status read = now.Read(memory, room); !read) return read;
      rest.DropFront(bytes);
      payload = room;
    }
    for (uint32_t i = begin; i < end; ++i) {
      const uint64_t length = PayloadOf(train, i);
      const std::span<const std::byte> part =
          length == 0 ? std::span<const std::byte>()
                      : payload.subspan(uint64_t{i - begin} * train.mtu_bytes, length);
      if (!packet(HeadersOf(train, i, length), part)) return {};
    }
  }
  return {};
}

}  // namespace

Status Core::CutToWire(Time now, const Train& train) {
  const wire::UdpFlow flow = FlowOf(train);
  return Cut(env.memory, train, wire_buffer_,
             [&](const wire::PacketHeaders& headers, std::span<const std::byte> payload) {
               const size_t bytes = DatagramBytes(headers, payload.size());
               const std::span<std::byte> room =
                   env.sink.Allocate(flow, train.traffic_class, bytes);
               // A full network loses what follows too: it would only arrive out of order.
               if (room.size() < bytes) return false;
               Fill(headers, payload, room);
               env.sink.Commit(now);
               counters.packets_sent++;
               return true;
             });
}

void Core::NoteLocal(Time now, const Train& train) {
  counters.local_packets += train.packets;
  if (!env.trace.wants_packets()) return;
  const wire::UdpFlow flow = FlowOf(train);
  std::vector<std::byte> datagram;
  // A payload that cannot be read is missing in the capture as it would be on the wire.
  (void)Cut(env.memory, train, wire_buffer_,
            [&](const wire::PacketHeaders& headers, std::span<const std::byte> payload) {
              datagram.assign(DatagramBytes(headers, payload.size()), std::byte{0});
              Fill(headers, payload, datagram);
              wire::SealPacket(flow, datagram);
              env.trace.WritePacket(now, flow, datagram);
              return true;
            });
}

}  // namespace rdmaemu::transport
