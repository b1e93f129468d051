// A QP whose peer is the test. The test writes each packet by hand and sees every packet of the QP.
// Use it for packets that two engines would never send to each other.
#pragma once

#include "emulator/transport/harness.h"
#include "emulator/transport/psn.h"

namespace rdmaemu::transport::testing {

class ScriptedPeer : public ::testing::Test {
 protected:
  static constexpr uint32_t kOwnPsn = 100;   // first PSN that the QP under test sends
  static constexpr uint32_t kPeerPsn = 500;  // first PSN that the QP under test expects

  struct Out {
    wire::PacketHeaders headers;
    std::vector<std::byte> payload;
    std::string name;
  };

  // Makes a new connected QP. Its MTU is 1024 bytes unless the link says otherwise.
  void Begin(const Link& link = {}, ibv_qp_type type = IBV_QPT_RC, size_t buffer_bytes = 65536) {
    x = world.Make(world.a, type, buffer_bytes);
    y = world.Make(*world.other, type, 4096);  // only supplies a QP number and an address
    world.Connect(x, y, link, kOwnPsn, kPeerPsn, true);
    own_class = type == IBV_QPT_RC ? wire::TransportClass::kRc : wire::TransportClass::kUc;
  }

  // Returns the headers of a packet from the peer, with only opcode and PSN set.
  wire::PacketHeaders Packet(wire::Operation operation, uint32_t psn) const {
    wire::PacketHeaders headers;
    headers.transport = own_class;
    headers.operation = operation;
    headers.destination_qpn = x.qp->qpn;
    headers.psn = psn;
    return headers;
  }
  // Returns a packet that requests an ACK.
  wire::PacketHeaders Request(wire::Operation operation, uint32_t psn) const {
    wire::PacketHeaders headers = Packet(operation, psn);
    headers.ack_request = true;
    return headers;
  }
  // Returns a packet that names `length` bytes of the QP's own buffer.
  wire::PacketHeaders Remote(wire::Operation operation, uint32_t psn, size_t offset,
                             uint32_t length) const {
    wire::PacketHeaders headers = Request(operation, psn);
    headers.remote_address = x.At(offset);
    headers.rkey = x.mr->rkey;
    headers.dma_length = length;
    return headers;
  }
  wire::PacketHeaders Atomic(wire::Operation operation, uint32_t psn, size_t offset,
                             uint64_t swap_add, uint64_t compare = 0) const {
    wire::PacketHeaders headers = Remote(operation, psn, offset, 0);
    headers.swap_add = swap_add;
    headers.compare = compare;
    return headers;
  }
  wire::PacketHeaders Ack(uint32_t psn, uint8_t syndrome = wire::kAethUnlimitedCredits) const {
    wire::PacketHeaders headers = Packet(wire::Operation::kAcknowledge, psn);
    headers.syndrome = syndrome;
    return headers;
  }
  static constexpr uint8_t Nak(wire::NakCode code) {
    return static_cast<uint8_t>(static_cast<uint8_t>(wire::AckKind::kNak) |
                                static_cast<uint8_t>(code));
  }
  static constexpr uint8_t RnrNak(uint8_t timer) {
    return static_cast<uint8_t>(static_cast<uint8_t>(wire::AckKind::kRnrNak) | timer);
  }

  // Delivers a packet to the QP and returns the QP's packets.
  std::vector<Out> Say(const wire::PacketHeaders& headers,
                       std::span<const std::byte> payload = {}) {
    Hand(headers, payload);
    return Hear();
  }
  void Hand(const wire::PacketHeaders& headers, std::span<const std::byte> payload = {}) {
    const wire::UdpFlow flow{world.other->address, world.a.address, wire::kRoceUdpPort,
                             wire::kRoceUdpPort};
    world.a.engine.Receive(world.now, flow, {headers, payload});
  }
  // Returns the packets that the QP sends now.
  std::vector<Out> Hear() {
    while (world.a.engine.Work(world.now)) {
    }
    std::vector<Out> all;
    for (; !world.a.out.empty(); world.a.out.pop_front()) {
      const Datagram& datagram = world.a.out.front();
      const auto packet = wire::Parse(datagram.bytes);
      EXPECT_TRUE(packet.has_value());
      if (!packet) continue;
      all.push_back({packet->headers,
                     {packet->payload.begin(), packet->payload.end()},
                     packet->headers.info().name});
    }
    return all;
  }
  // Advances time from deadline to deadline until the QP sends packets, and returns them. Returns
  // nothing when no deadline is left. A deadline that was moved may still wake up the engine.
  std::vector<Out> HearLater() {
    for (int i = 0; i < 1000; ++i) {
      const auto deadline = world.a.engine.NextDeadline();
      if (!deadline) break;
      world.now = std::max(world.now, *deadline);
      world.a.engine.Expire(world.now);
      std::vector<Out> all = Hear();
      if (!all.empty()) return all;
    }
    return {};
  }
  // Returns the only packet. Reports a failure and returns an empty packet when there is none or
  // more than one.
  static Out One(const std::vector<Out>& all) {
    EXPECT_EQ(all.size(), 1u);
    return all.size() == 1 ? all[0] : Out{};
  }
  static void ExpectAck(const std::vector<Out>& all, uint32_t psn, uint32_t msn,
                        uint8_t syndrome = wire::kAethUnlimitedCredits) {
    const Out one = One(all);
    EXPECT_EQ(one.name, "RC Acknowledge");
    EXPECT_EQ(one.headers.psn, psn);
    EXPECT_EQ(one.headers.msn, msn);
    EXPECT_EQ(one.headers.syndrome, syndrome);
  }
  static std::vector<std::string> Names(const std::vector<Out>& all) {
    std::vector<std::string> names;
    for (const Out& one : all) names.push_back(one.name);
    return names;
  }
  static std::vector<uint32_t> Psns(const std::vector<Out>& all) {
    std::vector<uint32_t> psns;
    for (const Out& one : all) psns.push_back(one.headers.psn);
    return psns;
  }
  uint64_t WordAt(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, x.buffer.data() + offset, sizeof word);
    return word;
  }
  void SetWord(size_t offset, uint64_t word) {
    std::memcpy(x.buffer.data() + offset, &word, sizeof word);
  }

  World world{false};
  Endpoint x{}, y{};
  wire::TransportClass own_class = wire::TransportClass::kRc;
};

}  // namespace rdmaemu::transport::testing
