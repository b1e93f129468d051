// Packets to a host with live queue pairs: valid packets of their connections with changed fields,
// answers to the host's packets, and raw bytes. The program's own calls and time continue
// meanwhile.
#include "tests/fuzz/scene.h"

namespace rdmaemu::fuzz {
namespace {

using wire::Operation;
using wire::PacketHeaders;
using wire::TransportClass;

uint32_t PayloadBytes(Input& in, const wire::OpcodeInfo& info) {
  constexpr uint32_t kMtuBytes = 1024;
  if (!info.payload) return in.OneIn(32) ? in.U8() : 0;
  switch (in.Below(4)) {
    case 0:
      return kMtuBytes;
    case 1:
      return in.Below(wire::kMaxMtuBytes + 64);
    default:
      return in.U8();
  }
}

// Changes a few bytes, mostly in the headers.
void Spoil(Input& in, std::vector<std::byte>& datagram) {
  for (uint32_t left = in.Below(4); left > 0 && !datagram.empty(); --left) {
    const size_t at = in.OneIn(4) ? in.U16() : in.Below(32);
    datagram[at % datagram.size()] = static_cast<std::byte>(in.U8());
  }
  if (in.OneIn(32)) datagram.resize(in.U8());
}

void Send(DataScene& scene, Input& in, const PacketHeaders& headers, uint32_t payload_bytes) {
  std::vector<std::byte> datagram = Build(headers, payload_bytes, in.U8());
  if (in.OneIn(4)) Spoil(in, datagram);
  const bool sealed = !in.OneIn(16);
  const char* const source = in.OneIn(16) ? kOwnAddress : kPeerAddress;
  const char* destination = in.OneIn(32) ? "10.9.9.9" : kOwnAddress;
  if (headers.destination_qpn == wire::kMulticastQpn) destination = kGroupAddress;
  scene.Receive(source, destination, std::move(datagram), sealed);
}

// Sends a request of the peer, in or out of sequence.
void Request(DataScene& scene, Input& in) {
  ScenePair& pair = in.Pick(scene.pairs);
  PacketHeaders headers;
  headers.transport = ClassOf(pair.type);
  headers.operation = static_cast<Operation>(in.Below(24));
  const wire::OpcodeInfo& info = headers.info();
  const uint8_t flags = in.U8();
  headers.solicited = (flags & 1) != 0;
  headers.ack_request = (flags & 2) != 0;
  headers.destination_qpn = pair.qp.made.qpn;
  if ((flags & 0x30) == 0x30) headers.destination_qpn = wire::kMulticastQpn;
  const int ahead = (flags & 0xc0) == 0xc0 ? static_cast<int8_t>(in.U8()) : 0;
  headers.psn = (pair.next_psn + static_cast<uint32_t>(ahead)) & wire::kPsnMask;
  headers.remote_address = kMemoryAt + in.U16();
  headers.rkey = in.OneIn(4) ? in.Pick(scene.windows).rkey : in.Pick(scene.regions).rkey;
  const uint32_t payload_bytes = info.name == nullptr ? 0 : PayloadBytes(in, info);
  headers.dma_length = info.read || in.OneIn(4) ? in.Edge32() : payload_bytes;
  headers.swap_add = in.U8();
  headers.qkey = in.OneIn(16) ? in.U32() : kQkey;
  headers.source_qpn = kPeerQpn;
  headers.syndrome = in.U8();
  headers.invalidate_rkey = headers.rkey;
  if (ahead == 0 && info.request) {
    const uint32_t packets = info.read ? std::max(1u, (headers.dma_length + 1023) / 1024) : 1;
    pair.next_psn = (pair.next_psn + packets) & wire::kPsnMask;
  }
  Send(scene, in, headers, payload_bytes);
}

// Sends an answer to one of the host's requests.
void Answer(DataScene& scene, Input& in) {
  if (scene.sent.empty()) return Request(scene, in);
  const auto asked = wire::Parse(in.Pick(scene.sent).bytes);
  if (!asked) return;
  PacketHeaders headers;
  headers.transport = asked->headers.transport;
  // The peer's QP numbers are consecutive, like the scene's pairs.
  const uint32_t index = asked->headers.destination_qpn - kPeerQpn;
  headers.destination_qpn = scene.pairs[index % scene.pairs.size()].qp.made.qpn;
  headers.psn = (asked->headers.psn + (in.OneIn(4) ? in.U8() - 128u : 0)) & wire::kPsnMask;
  headers.operation = static_cast<Operation>(13 + in.Below(6));
  if (in.OneIn(2)) {
    headers.operation = asked->headers.info().read     ? Operation::kReadResponseFirst
                        : asked->headers.info().atomic ? Operation::kAtomicAcknowledge
                                                       : Operation::kAcknowledge;
  }
  constexpr uint8_t kSyndromes[] = {wire::kAethUnlimitedCredits, 0x20, 0x60, 0x61, 0x62, 0x63};
  headers.syndrome = in.OneIn(4) ? in.U8() : kSyndromes[in.Below(std::size(kSyndromes))];
  headers.original = in.U8();
  Send(scene, in, headers, PayloadBytes(in, headers.info()));
}

void Raw(DataScene& scene, Input& in) {
  const auto bytes = in.Bytes(in.U8());
  const bool sealed = in.OneIn(2);
  scene.Receive(kPeerAddress, kOwnAddress, {bytes.begin(), bytes.end()}, sealed);
}

void Act(DataScene& scene, Input& in) {
  const uint8_t action = in.U8();
  switch (action & 15) {
    case 0:
      return Raw(scene, in);
    case 1:
      return scene.Pass(in);
    case 2:
      return scene.PostSend(in);
    case 3:
      return scene.PostReceive(in);
    case 4:
      return scene.Change(in);
    case 5:
      scene.PollAll();
      return scene.TakeJobs(in);
    case 6:
      // Datagrams from now on are delivered together.
      return (action & 0x40) != 0 ? scene.Hold() : scene.Deliver();
    case 7:
    case 8:
    case 9:
      Answer(scene, in);
      break;
    default:
      Request(scene, in);
      break;
  }
  if ((action & 0x80) != 0) scene.world.Step();
}

// Returns whether a group's packet reaches its attached queue pair. Otherwise the inputs do not
// test multicast.
bool GroupPacketsArrive() {
  DataScene scene;
  PacketHeaders headers;
  headers.transport = TransportClass::kUd;
  headers.operation = Operation::kSendOnly;
  headers.destination_qpn = wire::kMulticastQpn;
  headers.qkey = kQkey;
  headers.source_qpn = kPeerQpn;
  const auto completions = [&scene] {
    uint32_t sum = 0;
    for (const Ring& ring : scene.cq_rings) sum += ring.Producer();
    return sum;
  };
  scene.Rest();
  const uint32_t before = completions();
  scene.Receive(kPeerAddress, kGroupAddress, Build(headers, 8, 0), true);
  scene.Rest();
  return completions() == before + 1;
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool group_packets_arrive = rdmaemu::fuzz::GroupPacketsArrive();
  REQUIRE(group_packets_arrive);
  rdmaemu::fuzz::Input in(data, size);
  rdmaemu::fuzz::DataScene scene;
  scene.world.trace.keep_records = scene.world.trace.keep_packets = in.OneIn(16);
  while (!in.empty()) rdmaemu::fuzz::Act(scene, in);
  scene.Rest();
  return 0;
}
