#include "emulator/wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Two datagrams of real hardware with their ICRC. The tests of scapy's RoCE layer use the same
// vectors.
struct Vector {
  UdpFlow flow;
  uint16_t ip_id;
  std::vector<std::byte> datagram;
};
Vector UcSend() {
  return {{NetAddress::Ipv4(0xc0a80007), NetAddress::Ipv4(0xc0a80007), 49152, 4791},
          1144,
          Bytes({0x24, 0x60, 0xff, 0xff, 0,    0,    0,   211,  0,    0xcf, 0x17, 0x10,
                 'F',  '0',  0x81, 0x8b, 0xe2, 0x89, '5', 0xd9, 0x0e, 0x9a, 0x95, 'P',
                 'T',  0x01, 0xbe, 0x88, '^',  'P',  0,   0,    0x78, 0xf3, 0x53, 0xf3})};
}
Vector CnpOfAConnectX4() {
  return {{NetAddress::Ipv4(0x0a001101), NetAddress::Ipv4(0x0a001201), 0, 4791},
          0x718c,
          Bytes({0x81, 0, 0xff, 0xff, 0x40, 0, 0x01, 0x18, 0, 0, 0, 0, 0,    0,    0,    0,
                 0,    0, 0,    0,    0,    0, 0,    0,    0, 0, 0, 0, 0x82, 0xfd, 0x00, 0x2a})};
}

UdpFlow Ipv6Flow() {
  return {*NetAddress::Parse("fd00::1"), *NetAddress::Parse("fd00::2"), 4791, 4791};
}

std::vector<std::byte> Datagram(Random& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.Next32());
  return bytes;
}

// Checks three things: Icrc with the packet's ID gives the sender's ICRC, VerifyIcrc finds that ID,
// and a changed bit is detected. Only a change of the congestion byte is not detected. The changed
// bits are those of the packet, the addresses and the ports.
void ExpectKnown(const Vector& vector, uint32_t icrc_as_sent) {
  const auto body = std::span(vector.datagram).first(vector.datagram.size() - kIcrcBytes);
  const uint32_t icrc = Icrc(vector.flow, body, vector.ip_id);
  EXPECT_EQ(icrc, __builtin_bswap32(icrc_as_sent));
  for (size_t i = 0; i < kIcrcBytes; ++i) {
    EXPECT_EQ(static_cast<uint8_t>(vector.datagram[body.size() + i]), icrc >> 8 * i & 0xff);
  }
  EXPECT_EQ(VerifyIcrc(vector.flow, vector.datagram), vector.ip_id);
  auto flipped = vector.datagram;
  for (size_t bit = 0; bit < 8 * flipped.size(); ++bit) {
    if (bit / 8 == 4) continue;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(VerifyIcrc(vector.flow, flipped)) << bit;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  for (uint32_t bit = 0; bit < 32; ++bit) {
    UdpFlow other = vector.flow;
    other.source = NetAddress::Ipv4(vector.flow.source.ToIpv4() ^ 1u << bit);
    EXPECT_FALSE(VerifyIcrc(other, vector.datagram)) << "source address, bit " << bit;
    other = vector.flow;
    other.destination = NetAddress::Ipv4(vector.flow.destination.ToIpv4() ^ 1u << bit);
    EXPECT_FALSE(VerifyIcrc(other, vector.datagram)) << "destination address, bit " << bit;
    other = vector.flow;
    (bit < 16 ? other.source_port : other.destination_port) ^=
        static_cast<uint16_t>(1u << bit % 16);
    EXPECT_FALSE(VerifyIcrc(other, vector.datagram)) << "ports, bit " << bit;
  }
}

TEST(IcrcVector, Of78f353f3AUcSend) { ExpectKnown(UcSend(), 0x78f353f3); }
TEST(IcrcVector, Of82fd002aACnpOfAConnectX4) { ExpectKnown(CnpOfAConnectX4(), 0x82fd002a); }

TEST(Icrc, EveryIpIdIsFoundAtEverySizeUpToTheLargestPacket) {
  Random random(1);
  const UdpFlow flow = UcSend().flow;
  for (size_t size = 16; size <= kMaxHeaderBytes + kMaxMtuBytes + 3 + kIcrcBytes; size += 41) {
    auto bytes = Datagram(random, size);
    const auto ip_id = static_cast<uint16_t>(random.Next32());
    const uint32_t icrc = Icrc(flow, std::span(bytes).first(size - kIcrcBytes), ip_id);
    for (size_t i = 0; i < kIcrcBytes; ++i) {
      bytes[size - kIcrcBytes + i] = static_cast<std::byte>(icrc >> 8 * i);
    }
    EXPECT_EQ(VerifyIcrc(flow, bytes), ip_id) << size;
  }
}

TEST(Icrc, ASealedPacketVerifiesWithIdZeroAndNoSingleFlippedBitDoes) {
  Random random(2);
  for (const UdpFlow& flow : {UcSend().flow, Ipv6Flow()}) {
    for (const size_t size : {16u, 48u, 280u, 1044u}) {
      auto bytes = Datagram(random, size);
      SealPacket(flow, bytes);
      ASSERT_EQ(VerifyIcrc(flow, bytes), 0);
      for (size_t bit = 0; bit < 8 * size; ++bit) {
        if (bit / 8 == 4) continue;  // FECN, BECN: routers may change this byte
        bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        ASSERT_FALSE(VerifyIcrc(flow, bytes)) << bit;
        bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      }
    }
  }
}

TEST(Icrc, CoversAddressesAndPortsButNotTheCongestionByte) {
  auto bytes = UcSend().datagram;
  UdpFlow flow = UcSend().flow;
  bytes[4] ^= std::byte{0xc0};
  EXPECT_TRUE(VerifyIcrc(flow, bytes));
  ++flow.source_port;
  EXPECT_FALSE(VerifyIcrc(flow, bytes));
  flow = UcSend().flow;
  flow.source = NetAddress::Ipv4(0xc0a80008);
  EXPECT_FALSE(VerifyIcrc(flow, bytes));
}

TEST(Icrc, AnIpv6PacketHasNoIdToExplainADifference) {
  Random random(3);
  auto bytes = Datagram(random, 64);
  const uint32_t icrc = Icrc(Ipv6Flow(), std::span(bytes).first(60), 0) ^ 1;
  for (size_t i = 0; i < kIcrcBytes; ++i) bytes[60 + i] = static_cast<std::byte>(icrc >> 8 * i);
  EXPECT_FALSE(VerifyIcrc(Ipv6Flow(), bytes));
}

TEST(Icrc, SizesThatNoPacketHasAreRefused) {
  Random random(4);
  for (size_t size = 0; size < 16; ++size) {
    auto bytes = Datagram(random, size);
    const auto before = bytes;
    SealPacket(UcSend().flow, bytes);
    EXPECT_EQ(bytes, before);
    EXPECT_FALSE(VerifyIcrc(UcSend().flow, bytes));
  }
  auto large = Datagram(random, 65507);
  SealPacket(UcSend().flow, large);
  EXPECT_FALSE(VerifyIcrc(UcSend().flow, large));
}

// Every size has its entry computed, is found again, and is replaced by other sizes and flows of
// the same entry.
TEST(IcrcCache, AgreesWithSingleComputationsForMixedFlowsAndSizes) {
  Random random(5);
  IcrcCache cache;
  UdpFlow other_port = UcSend().flow;
  other_port.source_port = 4791;
  const std::array flows{UcSend().flow, CnpOfAConnectX4().flow, Ipv6Flow(), other_port};
  for (int i = 0; i < 2000; i++) {
    const UdpFlow& flow = flows.at(random.Next32() % flows.size());
    const size_t few = 16 + 4 * (random.Next32() % 4);
    const size_t any = 16 + random.Next32() % 4200;
    auto bytes = Datagram(random, random.Next32() % 2 == 0 ? few : std::min<size_t>(any, 4150));
    if (random.Next32() % 4 != 0) bytes[4] = std::byte{0};
    auto sealed = bytes;
    SealPacket(flow, sealed);
    cache.Seal(flow, bytes);
    ASSERT_EQ(bytes, sealed);
    ASSERT_EQ(cache.Verify(flow, bytes), VerifyIcrc(flow, bytes));
    bytes[random.Next32() % bytes.size()] ^= std::byte{0x10};
    ASSERT_EQ(cache.Verify(flow, bytes), VerifyIcrc(flow, bytes));
  }
}

TEST(IcrcCache, FindsTheIpId) {
  IcrcCache cache;
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(cache.Verify(UcSend().flow, UcSend().datagram), UcSend().ip_id);
    EXPECT_EQ(cache.Verify(CnpOfAConnectX4().flow, CnpOfAConnectX4().datagram),
              CnpOfAConnectX4().ip_id);
  }
}

TEST(IcrcCache, SizesThatNoPacketHasAreRefused) {
  Random random(6);
  IcrcCache cache;
  for (size_t size = 0; size < 16; ++size) {
    auto bytes = Datagram(random, size);
    const auto before = bytes;
    cache.Seal(UcSend().flow, bytes);
    EXPECT_EQ(bytes, before);
    EXPECT_FALSE(cache.Verify(UcSend().flow, bytes));
  }
  auto large = Datagram(random, 65507);
  cache.Seal(UcSend().flow, large);
  EXPECT_FALSE(cache.Verify(UcSend().flow, large));
}

}  // namespace
}  // namespace rdmaemu::wire
