#include "emulator/runtime/emulator_peers.h"

#include <gtest/gtest.h>

#include <vector>

#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

const NetAddress kOwn = NetAddress::Ipv4(0x0a000001), kPeer = NetAddress::Ipv4(0x0a000002);
constexpr uint16_t kPortOfRxe = 0xC123;

wire::UdpFlow From(const NetAddress& peer, uint16_t port) {
  return {peer, kOwn, port, wire::kRoceUdpPort};
}

// Returns a datagram with a correct ICRC.
std::vector<std::byte> Sealed(const wire::UdpFlow& flow) {
  std::vector<std::byte> datagram(32, std::byte{7});
  wire::SealPacket(flow, datagram);
  return datagram;
}

void Receive(EmulatorPeers& peers, const wire::UdpFlow& flow) {
  peers.NoteReceived(flow, Sealed(flow));
}

TEST(EmulatorPeers, APeerThatSendsFromRocesPortIsAnEmulator) {
  EmulatorPeers peers;
  EXPECT_FALSE(peers.Contains(kPeer));
  Receive(peers, From(kPeer, wire::kRoceUdpPort));
  EXPECT_TRUE(peers.Contains(kPeer));
  EXPECT_FALSE(peers.Contains(kOwn));
}

TEST(EmulatorPeers, APeerThatSendsFromAnotherPortIsNone) {
  EmulatorPeers peers;
  Receive(peers, From(kPeer, kPortOfRxe));
  EXPECT_FALSE(peers.Contains(kPeer));
}

// Another machine may get the address of an emulator.
TEST(EmulatorPeers, TheLatestDatagramDecides) {
  EmulatorPeers peers;
  Receive(peers, From(kPeer, wire::kRoceUdpPort));
  Receive(peers, From(kPeer, kPortOfRxe));
  EXPECT_FALSE(peers.Contains(kPeer));
  Receive(peers, From(kPeer, wire::kRoceUdpPort));
  EXPECT_TRUE(peers.Contains(kPeer));
}

TEST(EmulatorPeers, ADatagramWithAWrongIcrcAddsNobody) {
  EmulatorPeers peers;
  const wire::UdpFlow flow = From(kPeer, wire::kRoceUdpPort);
  std::vector<std::byte> datagram = Sealed(flow);
  datagram[20] ^= std::byte{1};
  peers.NoteReceived(flow, datagram);
  peers.NoteReceived(flow, {});
  EXPECT_FALSE(peers.Contains(kPeer));
}

TEST(EmulatorPeers, RemembersABoundedNumber) {
  EmulatorPeers peers;
  const auto nth = [](size_t i) { return NetAddress::Ipv4(static_cast<uint32_t>(0x0b000000 + i)); };
  for (size_t i = 0; i <= EmulatorPeers::kMaxPeers; i++) {
    Receive(peers, From(nth(i), wire::kRoceUdpPort));
  }
  EXPECT_TRUE(peers.Contains(nth(EmulatorPeers::kMaxPeers - 1)));
  EXPECT_FALSE(peers.Contains(nth(EmulatorPeers::kMaxPeers)));
  Receive(peers, From(nth(0), kPortOfRxe));
  Receive(peers, From(nth(EmulatorPeers::kMaxPeers), wire::kRoceUdpPort));
  EXPECT_TRUE(peers.Contains(nth(EmulatorPeers::kMaxPeers)));
}

}  // namespace
}  // namespace rdmaemu::runtime
