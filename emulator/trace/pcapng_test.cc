#include "emulator/trace/pcapng.h"

#include <gtest/gtest.h>

#include <vector>

namespace rdmaemu::trace {
namespace {

const wire::UdpFlow kIpv4{NetAddress::Ipv4(0x7f000101), NetAddress::Ipv4(0x7f000102), 4791, 4791};
const wire::UdpFlow kIpv6{*NetAddress::Parse("fd00::1"), *NetAddress::Parse("fd00::2"), 4791, 4791};

uint8_t At(const std::string& bytes, size_t index) { return static_cast<uint8_t>(bytes[index]); }
uint32_t Little(const std::string& bytes, size_t index) {
  return At(bytes, index) | At(bytes, index + 1) << 8 | At(bytes, index + 2) << 16 |
         static_cast<uint32_t>(At(bytes, index + 3)) << 24;
}
// Returns the one's complement sum of a region. The sum is 0xffff when the region contains a
// correct checksum.
uint32_t Check(const std::string& bytes, size_t from, size_t to, uint32_t sum = 0) {
  for (size_t i = from; i < to; i += 2) {
    sum += At(bytes, i) << 8 | (i + 1 < to ? At(bytes, i + 1) : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}
std::string PacketBlock(const wire::UdpFlow& flow, size_t payload_bytes) {
  std::vector<std::byte> payload(payload_bytes);
  for (size_t i = 0; i < payload_bytes; ++i) payload[i] = static_cast<std::byte>(i * 7 + 1);
  std::string out;
  PcapngWriter(Duration(1), "a").AppendPacket(Time(Duration(0x100000001)), flow, payload, out);
  return out;
}
constexpr size_t kPacketAt = 28;  // in an enhanced packet block

TEST(Pcapng, EveryBlockSaysItsLengthInFrontAndBehindAndIsAMultipleOfFour) {
  for (size_t payload = 0; payload < 9; ++payload) {
    std::string file;
    PcapngWriter(Duration(0), "host").AppendStart(file);
    file += PacketBlock(kIpv4, payload);
    size_t at = 0, blocks = 0;
    while (at < file.size()) {
      const uint32_t length = Little(file, at + 4);
      ASSERT_EQ(length % 4, 0u);
      ASSERT_LE(at + length, file.size());
      ASSERT_EQ(Little(file, at + length - 4), length);
      at += length;
      ++blocks;
    }
    EXPECT_EQ(blocks, 3u);
  }
}

TEST(Pcapng, TimestampsAreNanosecondsWithTheWallOffsetAdded) {
  const std::string block = PacketBlock(kIpv4, 16);
  EXPECT_EQ(Little(block, 12), 1u);  // upper half
  EXPECT_EQ(Little(block, 16), 2u);
}

TEST(Pcapng, Ipv4HeadersHaveRightChecksumsIdZeroAndDf) {
  for (const size_t payload : {16u, 17u, 4096u}) {
    const std::string block = PacketBlock(kIpv4, payload);
    EXPECT_EQ(Check(block, kPacketAt, kPacketAt + 20), 0xffffu);
    EXPECT_EQ(At(block, kPacketAt + 4) << 8 | At(block, kPacketAt + 5), 0);
    EXPECT_EQ(At(block, kPacketAt + 6), 0x40);
    EXPECT_EQ(At(block, kPacketAt + 8), 64);
    const auto pseudo = static_cast<uint32_t>(17 + 8 + payload);
    EXPECT_EQ(Check(block, kPacketAt + 12, kPacketAt + 28 + payload, pseudo), 0xffffu);
  }
}

TEST(Pcapng, Ipv6HeadersHaveARightUdpChecksum) {
  for (const size_t payload : {16u, 17u, 4096u}) {
    const std::string block = PacketBlock(kIpv6, payload);
    const auto pseudo = static_cast<uint32_t>(17 + 8 + payload);
    EXPECT_EQ(At(block, kPacketAt), 0x60);
    EXPECT_EQ(Check(block, kPacketAt + 8, kPacketAt + 48 + payload, pseudo), 0xffffu);
  }
}

TEST(Pcapng, WhatNoDatagramCanHoldIsNotWritten) {
  EXPECT_FALSE(PacketBlock(kIpv4, PcapngWriter::kMaxUdpPayloadBytes).empty());
  EXPECT_TRUE(PacketBlock(kIpv4, PcapngWriter::kMaxUdpPayloadBytes + 1).empty());
}

}  // namespace
}  // namespace rdmaemu::trace
