// Tests with captures of a kernel's rdma_rxe and a user-space peer. The IP ID in each packet
// explains the ICRC, every packet parses, and every CM message is emitted with the same bytes. The
// tests count the packets that the peer sent wrong on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "emulator/wire/byte_order.h"
#include "emulator/wire/cm_message.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

struct Datagram {
  UdpFlow flow;
  uint16_t ip_id;
  std::vector<std::byte> payload;
  std::vector<std::byte> ip_packet;  // from the IP header to the ICRC
};

NetAddress AddressAt(const std::byte* from, bool ipv4) {
  if (ipv4) return NetAddress::Ipv4(static_cast<uint32_t>(LoadBig<4>(from)));
  NetAddress address;
  std::memcpy(address.bytes.data(), from, 16);
  return address;
}

// The RoCE datagrams of a little-endian pcap file of Ethernet frames.
std::vector<Datagram> Read(const std::string& name) {
  std::ifstream file("emulator/wire/testdata/" + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  constexpr size_t kFileHeader = 24, kRecordHeader = 16, kEthernet = 14;
  std::vector<Datagram> datagrams;
  size_t at = kFileHeader;
  while (at + kRecordHeader <= text.size()) {
    uint32_t length;
    std::memcpy(&length, data + at + 8, 4);
    const std::byte* const frame = data + at + kRecordHeader;
    at += kRecordHeader + length;
    const uint64_t type = LoadBig<2>(frame + 12);
    const bool ipv4 = type == 0x0800;
    if (!ipv4 && type != 0x86dd) continue;
    const std::byte* const ip = frame + kEthernet;
    const std::byte* const udp = ip + (ipv4 ? 20 : 40);
    if (ip[ipv4 ? 9 : 6] != std::byte{17} || LoadBig<2>(udp + 2) != kRoceUdpPort) continue;
    datagrams.push_back(
        {{AddressAt(ip + (ipv4 ? 12 : 8), ipv4), AddressAt(ip + (ipv4 ? 16 : 24), ipv4),
          static_cast<uint16_t>(LoadBig<2>(udp)), kRoceUdpPort},
         static_cast<uint16_t>(ipv4 ? LoadBig<2>(ip + 4) : 0),
         {udp + 8, udp + LoadBig<2>(udp + 4)},
         {ip, udp + LoadBig<2>(udp + 4)}});
  }
  return datagrams;
}

// Computes the ICRC by the letter of IBTA A17.3.3, bit by bit. The CRC covers InfiniBand's eight
// bytes of ones and the packet on the wire, with all fields that routers may change set to ones.
uint32_t ByTheLetter(std::vector<std::byte> packet) {
  const bool ipv4 = (packet[0] >> 4) == std::byte{4};
  const size_t udp = ipv4 ? 20 : 40;
  const auto mask = [&](size_t at) { packet[at] = std::byte{0xff}; };
  if (ipv4) {
    for (const size_t at : {1, 8, 10, 11}) mask(at);  // TOS, TTL, header checksum
  } else {
    packet[0] |= std::byte{0x0f};                   // traffic class
    for (const size_t at : {1, 2, 3, 7}) mask(at);  // and flow label, hop limit
  }
  for (const size_t at : {udp + 6, udp + 7, udp + 8 + 4}) mask(at);  // UDP checksum, FECN and BECN
  packet.resize(packet.size() - kIcrcBytes);
  packet.insert(packet.begin(), 8, std::byte{0xff});
  uint32_t crc = ~0u;
  for (const std::byte byte : packet) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~crc;
}

// A capture, and the number of datagrams that its peer sent wrong on purpose. The kernel sent none
// of these.
struct File {
  const char* name;
  int datagrams;
  int other_ip_id;  // the ICRC is for ID 0, but the socket sent another ID
  int bad_icrc;
  int bad_packet;  // TVer 1
  int cm_messages;
  int bad_mad;  // class version, base version, method
};

class Capture : public testing::TestWithParam<File> {
 protected:
  void SetUp() override {
    datagrams_ = Read(GetParam().name);
    EXPECT_EQ(static_cast<int>(datagrams_.size()), GetParam().datagrams);
  }
  // Counts one more wrong datagram; the kernel must have sent none.
  void Wrong(const Datagram& datagram, int& count) {
    const std::string source = datagram.flow.source.ToString();
    EXPECT_TRUE(source == "10.66.0.2" || source == "fd00:66::2") << source;
    ++count;
  }
  std::vector<Datagram> datagrams_;
};

TEST_P(Capture, EveryIcrcIsExplainedByTheIpIdThatStandsInThePacket) {
  int other_ip_id = 0, bad_icrc = 0;
  for (const Datagram& datagram : datagrams_) {
    const auto ip_id = VerifyIcrc(datagram.flow, datagram.payload);
    if (!ip_id) {
      Wrong(datagram, bad_icrc);
    } else if (*ip_id != datagram.ip_id) {
      Wrong(datagram, other_ip_id);
    }
  }
  EXPECT_EQ(other_ip_id, GetParam().other_ip_id);
  EXPECT_EQ(bad_icrc, GetParam().bad_icrc);
}

// Each datagram is one vector: its own ICRC, our ICRC, and the ICRC by the letter.
TEST_P(Capture, EveryIcrcIsTheOneThatTheSpecificationDescribes) {
  int bad_icrc = 0;
  for (const Datagram& datagram : datagrams_) {
    const auto body = std::span(datagram.payload).first(datagram.payload.size() - kIcrcBytes);
    uint32_t stands = 0;
    std::memcpy(&stands, datagram.payload.data() + body.size(), sizeof stands);
    const uint32_t sum = ByTheLetter(datagram.ip_packet);
    // Icrc is for packets with DF. The peer cleared DF in some packets on purpose.
    const bool ipv4 = datagram.flow.source.IsIpv4();
    if (!ipv4 || (datagram.ip_packet[6] & std::byte{0x40}) != std::byte{0}) {
      EXPECT_EQ(Icrc(datagram.flow, body, datagram.ip_id), sum);
    }
    if (stands != sum) Wrong(datagram, bad_icrc);
  }
  EXPECT_EQ(bad_icrc, GetParam().bad_icrc + GetParam().other_ip_id);
}

// Only the congestion byte may change. Any other changed bit of a datagram, its addresses or its
// ports is detected.
TEST_P(Capture, NoSingleFlippedBitPasses) {
  int tried = 0;
  const auto refused = [&tried](const UdpFlow& flow, std::span<const std::byte> payload) {
    ++tried;
    return !VerifyIcrc(flow, payload).has_value();
  };
  for (Datagram& datagram : datagrams_) {
    if (!VerifyIcrc(datagram.flow, datagram.payload)) continue;
    std::vector<std::byte>& bytes = datagram.payload;
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      if (bit / 8 == 4) continue;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      ASSERT_TRUE(refused(datagram.flow, bytes)) << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    const size_t first = datagram.flow.source.IsIpv4() ? 12 : 0;  // of an address's 16 bytes
    for (size_t bit = 8 * first; bit < 128; ++bit) {
      for (NetAddress UdpFlow::*const address : {&UdpFlow::source, &UdpFlow::destination}) {
        UdpFlow flow = datagram.flow;
        (flow.*address).bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        ASSERT_TRUE(refused(flow, bytes)) << "address, bit " << bit;
      }
    }
    for (int bit = 0; bit < 16; ++bit) {
      UdpFlow flow = datagram.flow;
      flow.source_port ^= static_cast<uint16_t>(1 << bit);
      ASSERT_TRUE(refused(flow, bytes)) << "source port, bit " << bit;
    }
  }
  EXPECT_GT(tried, 90'000);
}

TEST_P(Capture, EveryPacketParsesAndItsHeadersComeBackTheSame) {
  int bad_packet = 0;
  for (const Datagram& datagram : datagrams_) {
    const auto packet = Parse(datagram.payload);
    if (!packet) {
      EXPECT_EQ(packet.error(), ParseError::kBadVersion);
      Wrong(datagram, bad_packet);
      continue;
    }
    std::vector<std::byte> headers(kMaxHeaderBytes);
    headers.resize(EmitHeaders(packet->headers, headers));
    EXPECT_TRUE(std::equal(headers.begin(), headers.end(), datagram.payload.begin()));
  }
  EXPECT_EQ(bad_packet, GetParam().bad_packet);
}

TEST_P(Capture, EveryCmMessageComesBackToTheSameBytes) {
  int cm_messages = 0, bad_mad = 0;
  for (const Datagram& datagram : datagrams_) {
    const auto packet = Parse(datagram.payload);
    if (!packet || packet->headers.destination_qpn != kGsiQpn) continue;
    const auto message = ParseCm(packet->payload);
    if (!message) {
      EXPECT_NE(message.error(), CmParseError::kUnknownAttribute);
      Wrong(datagram, bad_mad);
      continue;
    }
    ++cm_messages;
    std::array<std::byte, kMadBytes> again;
    EmitCm(*message, again);
    const auto differs = std::mismatch(again.begin(), again.end(), packet->payload.begin());
    EXPECT_EQ(differs.first, again.end())
        << CmName(message->body) << " differs at byte " << differs.first - again.begin();
  }
  EXPECT_EQ(cm_messages, GetParam().cm_messages);
  EXPECT_EQ(bad_mad, GetParam().bad_mad);
}

INSTANTIATE_TEST_SUITE_P(RealKernel, Capture,
                         testing::Values(File{"steps1-5.pcap", 113, 0, 0, 0, 28, 0},
                                         File{"variants-ipv6.pcap", 506, 4, 2, 2, 478, 6}),
                         [](const auto& info) { return "File" + std::to_string(info.index); });

}  // namespace
}  // namespace rdmaemu::wire
