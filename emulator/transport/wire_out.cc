// Cuts a train into packets: bytes for the sink, or for a capture of local traffic. Reads the
// payload from program memory in batches, because one call per packet costs more than the packet.
// For the sink, reads directly into the packets.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emulator/transport/core.h"
#include "emulator/transport/packets_of.h"
#include "emulator/transport/train_form.h"
#include "emulator/verbs/device.h"

namespace rdmaemu::transport {
namespace {

constexpr uint64_t kReadBatchBytes = 64 * 1024;
// The most packets that one read fills. At least as many as a burst of the network.
constexpr uint32_t kMaxRunPackets = 64;

void CopyParts(std::span<const std::byte> from, std::span<const std::span<std::byte>> to) {
  for (const std::span<std::byte> part : to) {
    if (!part.empty()) std::memcpy(part.data(), from.data(), part.size());
    from = from.subspan(part.size());
  }
}

// Calls packet(headers, payload) for each packet of the train, in order, until a call returns
// false.
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

Train PartOf(const Train& train, uint32_t begin, uint32_t count) {
  Train part = train;
  if (begin > 0) part.DropFront(begin);
  if (count < part.packets) {
    part.KeepFront(count);
    part.headers.ack_request = false;  // only the train's last packet has it
  }
  return part;
}

}  // namespace

Status Core::PassDoors(Time now, const Train& train, bool local, const HandOn& hand_on) {
  uint32_t begin = 0;
  const auto hand_on_until = [&](uint32_t end) -> Status {
    if (end == begin) return {};
    Train part = PartOf(train, begin, end - begin);
    return hand_on(part);
  };
  for (uint32_t i = 0; i < train.packets; ++i) {
    if (AskDoors(now, train, i, local)) continue;
    if (const Status sent = hand_on_until(i); !sent) return sent;
    begin = i + 1;
  }
  return hand_on_until(train.packets);
}

bool Core::AskDoors(Time now, const Train& train, uint32_t index, bool local) {
  const uint64_t payload = PayloadOf(train, index);
  const wire::PacketHeaders headers = HeadersOf(train, index, payload);
  const PacketBytes bytes = [&] { return DatagramOf(train, index); };
  PassingPacket packet{fault::Direction::kSend, headers, train.source,     train.destination,
                       train.traffic_class,     payload, train.sender_qpn, local};
  if (!env.doors->Passes(now, packet, bytes)) return false;
  if (!local) return true;
  packet.direction = fault::Direction::kReceive;
  packet.qpn = headers.destination_qpn;
  return env.doors->Passes(now, packet, bytes);
}

std::vector<std::byte> Core::DatagramOf(const Train& train, uint32_t index) {
  std::vector<std::byte> datagram;
  (void)Cut(env.memory, PartOf(train, index, 1), wire_buffer_,
            [&](const wire::PacketHeaders&, std::span<const std::byte> payload) {
              // The headers are those in the whole train. A part's last packet may be a Middle
              // packet there.
              const wire::PacketHeaders headers = HeadersOf(train, index, payload.size());
              datagram.assign(DatagramBytes(headers.info(), payload.size()), std::byte{0});
              Fill(headers, payload, datagram);
              wire::SealPacket(FlowOf(train), datagram);
              return true;
            });
  return datagram;
}

bool Core::SendForm(Time now, const Train& train, Status& status) {
  if (!HasForm(train)) return false;
  // Programs fill forms meanwhile. A wait would end their copies (FormFills::FinishAll).
  const bool may_wait =
      fills.empty() || sends_now || doors.packets || train.length() < kMinJobBytes;
  const auto form = env.sink.AllocateForm(train, may_wait);
  if (!form) return false;
  if (form->empty()) {
    is_wire_full = true;
    status = Fail(EAGAIN);
    return true;
  }
  const std::span<std::byte> payload = EmitFormHead(train, *form);
  const QpContext* const requester =
      env.sink.takes_unfilled() && !sends_now ? Find(train.origin) : nullptr;
  if (requester != nullptr && fills.Takes(now, *requester, train)) {
    fills.Add(now, *requester, train, env.sink.CommitUnfilled(now, payload.size()));
    counters.packets_sent += train.packets;
    return true;
  }
  if (train.is_bytes) {
    CopyParts(train.bytes, {&payload, 1});
  } else if (!payload.empty()) {
    status = train.pieces.Read(env.memory, payload);
    if (!status) return true;
  }
  env.sink.Commit(now);
  counters.packets_sent += train.packets;
  return true;
}

Status Core::SendToWire(Time now, const Train& train) {
  const uint32_t most = std::max(1u, static_cast<uint32_t>(kMaxFormPayloadBytes / train.mtu_bytes));
  Status status;
  if (train.packets <= most) return SendForm(now, train, status) ? status : CutToWire(now, train);
  for (uint32_t begin = 0; begin < train.packets && status; begin += most) {
    const uint32_t count = std::min(train.packets - begin, most);
    if (!SendForm(now, PartOf(train, begin, count), status)) {
      return CutToWire(now, PartOf(train, begin, train.packets - begin));
    }
  }
  return status;
}

Status Core::CutToWire(Time now, const Train& train) {
  const wire::UdpFlow flow = FlowOf(train);
  std::array<size_t, kMaxRunPackets> sizes;
  std::array<std::span<std::byte>, kMaxRunPackets> rooms;
  Pieces rest;
  if (!train.is_bytes) rest = train.pieces;
  for (uint32_t begin = 0; begin < train.packets;) {
    const uint32_t wanted = std::min(train.packets - begin, kMaxRunPackets);
    for (uint32_t i = 0; i < wanted; ++i) {
      const uint64_t payload = PayloadOf(train, begin + i);
      const wire::Operation operation = OperationOf(train, begin + i);
      sizes[i] = DatagramBytes(wire::Opcode(train.headers.transport, operation), payload);
    }
    const size_t count = env.sink.AllocateRun(
        flow, train.traffic_class, std::span(sizes).first(wanted), std::span(rooms).first(wanted));
    // A full network also loses the packets behind this one, because they would only arrive out of
    // order.
    if (count == 0) return {};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t payload = PayloadOf(train, begin + i);
      rooms[i] = FillAround(HeadersOf(train, begin + i, payload), payload, rooms[i]);
      bytes += payload;
    }
    const uint64_t offset = uint64_t{begin} * train.mtu_bytes;
    const std::span<const std::span<std::byte>> into = std::span(rooms).first(count);
    if (train.is_bytes) {
      CopyParts(train.bytes.subspan(offset, bytes), into);
    } else if (bytes > 0) {
      Pieces now_read = rest;
      now_read.Truncate(bytes);
      if (const Status read = now_read.ReadParts(env.memory, into); !read) return read;
      rest.DropFront(bytes);
    }
    env.sink.Commit(now);
    counters.packets_sent += count;
    begin += static_cast<uint32_t>(count);
  }
  return {};
}

void Core::NoteLocal(Time now, const Train& train) {
  counters.local_packets += train.packets;
  if (!env.trace.wants_packets()) return;
  const wire::UdpFlow flow = FlowOf(train);
  std::vector<std::byte> datagram;
  // A payload that cannot be read is missing in the capture, as it is on the wire.
  Memory& memory = env.memory_of_captures != nullptr ? *env.memory_of_captures : env.memory;
  (void)Cut(memory, train, wire_buffer_,
            [&](const wire::PacketHeaders& headers, std::span<const std::byte> payload) {
              datagram.assign(DatagramBytes(headers.info(), payload.size()), std::byte{0});
              Fill(headers, payload, datagram);
              wire::SealPacket(flow, datagram);
              env.trace.WritePacket(now, flow, datagram);
              return true;
            });
}

}  // namespace rdmaemu::transport
