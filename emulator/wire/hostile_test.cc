// The parsers accept any bytes, read nothing outside them, and return only consistent headers. The
// random rounds have a seed, so that a failure repeats. tests/fuzz searches deeper.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

constexpr int kRounds = 100'000;

void Fill(Random& random, std::span<std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.Next64();
    std::memcpy(&bytes[at], &word, std::min(sizeof word, bytes.size() - at));
  }
}

TEST(Hostile, RandomDatagramsParseToWhatTheyHoldOrNotAtAll) {
  Random random(1);
  std::vector<std::byte> bytes;
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    bytes.assign(random.Below(96), std::byte{});
    bytes.shrink_to_fit();  // so that a sanitizer detects a read behind the end
    Fill(random, bytes);
    // Half of the inputs get a valid version, to reach the code after the version check.
    if (bytes.size() > 1 && round % 2 == 0) bytes[1] &= std::byte{0xf0};
    const auto packet = Parse(bytes);
    if (!packet) continue;
    ++taken;
    const PacketHeaders& headers = packet->headers;
    const OpcodeInfo& info = headers.info();
    ASSERT_NE(info.name, nullptr);
    ASSERT_EQ(info.header_bytes + packet->payload.size() + headers.pad_bytes + kIcrcBytes,
              bytes.size());
    std::array<std::byte, kMaxHeaderBytes> again;
    ASSERT_EQ(EmitHeaders(headers, again), info.header_bytes);
    ASSERT_EQ(again[0], bytes[0]);
    ASSERT_TRUE(std::equal(again.begin() + 9, again.begin() + 12, bytes.begin() + 9));
  }
  EXPECT_GT(taken, kRounds / 200);
}

TEST(Hostile, RandomMadsParseAndComeBackTheSame) {
  Random random(2);
  std::array<std::byte, kMadBytes> mad, first, second;
  Fill(random, mad);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t bits = random.Next64();
    mad[bits & 0xff] ^= static_cast<std::byte>(bits >> 8);
    mad[bits >> 16 & 0xff] ^= static_cast<std::byte>(bits >> 24);
    if (round % 8 != 0) {
      mad[0] = std::byte{1};
      mad[1] = std::byte{7};
      mad[2] = std::byte{2};
      mad[3] = std::byte{3};
      mad[16] = std::byte{0};
      mad[17] = static_cast<std::byte>(0x10 + (bits >> 32) % 12);
    }
    const auto message = ParseCm(mad);
    if (!message) continue;
    ++taken;
    if (round % 16 != 1) continue;
    EmitCm(*message, first);
    const auto again = ParseCm(first);
    ASSERT_TRUE(again.has_value());
    EmitCm(*again, second);
    ASSERT_EQ(first, second);
  }
  EXPECT_GT(taken, kRounds / 2);
}

TEST(Hostile, RandomDatagramsDoNotPassTheIcrc) {
  Random random(3);
  const UdpFlow flow{*NetAddress::Parse("fd00::1"), *NetAddress::Parse("fd00::2"), 4791, 4791};
  std::vector<std::byte> bytes;
  for (int round = 0; round < 10'000; ++round) {
    bytes.assign(random.Below(5000), std::byte{});
    if (!bytes.empty()) Fill(random, std::span(bytes).first(std::min<size_t>(bytes.size(), 64)));
    EXPECT_FALSE(VerifyIcrc(flow, bytes));
  }
}

}  // namespace
}  // namespace rdmaemu::wire
