// Trains between hosts that share memory: what a form keeps, and which bytes are no form.
#include "emulator/transport/train_form.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "emulator/transport/packets_of.h"

namespace rdmaemu::transport {
namespace {

const wire::UdpFlow kFlow{NetAddress::Ipv4(0x0a000001), NetAddress::Ipv4(0x0a000002),
                          wire::kRoceUdpPort, wire::kRoceUdpPort};

struct Sample {
  std::vector<std::byte> payload;
  Train train;

  Sample(wire::Operation operation, uint32_t mtu_bytes, size_t bytes) : payload(bytes) {
    for (size_t i = 0; i < bytes; i++) payload[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    train.headers.operation = operation;
    train.headers.destination_qpn = 77;
    train.headers.psn = 0xfffffe;  // wraps
    train.headers.ack_request = true;
    train.headers.remote_address = 0x1234567890;
    train.headers.rkey = 0xabcd;
    train.headers.dma_length = static_cast<uint32_t>(bytes);
    train.headers.immediate = 0x01020304;
    train.source = kFlow.source;
    train.destination = kFlow.destination;
    train.mtu_bytes = mtu_bytes;
    train.packets =
        std::max<uint32_t>(1, static_cast<uint32_t>((bytes + mtu_bytes - 1) / mtu_bytes));
    train.is_bytes = true;
    train.bytes = payload;
  }
  std::vector<std::byte> Form() const {
    std::vector<std::byte> form(FormBytes(train));
    const std::span<std::byte> room = EmitFormHead(train, form);
    EXPECT_EQ(room.size(), payload.size());
    if (!payload.empty()) std::memcpy(room.data(), payload.data(), payload.size());
    return form;
  }
};

std::vector<std::vector<std::byte>> DatagramsOf(const Train& train) {
  std::vector<std::vector<std::byte>> all;
  ForEachDatagram(train, [&](std::span<const std::byte> datagram) {
    all.emplace_back(datagram.begin(), datagram.end());
  });
  return all;
}

TEST(TrainForm, AFormStandsForTheSamePackets) {
  for (const wire::Operation operation :
       {wire::Operation::kSendOnly, wire::Operation::kSendOnlyImm, wire::Operation::kWriteOnly,
        wire::Operation::kWriteOnlyImm, wire::Operation::kReadResponseOnly,
        wire::Operation::kSendOnlyInvalidate}) {
    for (const uint32_t mtu_bytes : {256u, 1024u, 4096u}) {
      for (const size_t bytes : {0ul, 1ul, 255ul, 256ul, 257ul, 4095ul, 4096ul, 4097ul, 65536ul}) {
        const Sample message(operation, mtu_bytes, bytes);
        ASSERT_TRUE(HasForm(message.train));
        const std::vector<std::byte> form = message.Form();
        Train parsed;
        ASSERT_TRUE(ParseForm(kFlow, form, parsed));
        const auto expected = DatagramsOf(message.train);
        EXPECT_EQ(DatagramsOf(parsed), expected) << bytes << " bytes, MTU " << mtu_bytes;
        uint64_t total = 0;
        for (const auto& datagram : expected) {
          EXPECT_TRUE(wire::VerifyIcrc(kFlow, datagram));
          total += datagram.size();
        }
        EXPECT_EQ(DatagramBytesOf(message.train), total);
        std::vector<wire::Packet> packets;
        AppendPackets(parsed, packets);
        ASSERT_EQ(packets.size(), expected.size());
        for (size_t i = 0; i < packets.size(); i++) {
          const auto from_wire = wire::Parse(expected[i]);
          ASSERT_TRUE(from_wire);
          EXPECT_EQ(packets[i].headers.operation, from_wire->headers.operation);
          EXPECT_EQ(packets[i].headers.psn, from_wire->headers.psn);
          EXPECT_EQ(packets[i].headers.ack_request, from_wire->headers.ack_request);
          EXPECT_TRUE(std::ranges::equal(packets[i].payload, from_wire->payload));
        }
      }
    }
  }
}

TEST(TrainForm, PartsOfAMessageHaveForms) {
  const Sample message(wire::Operation::kWriteOnlyImm, 1024, 8 * 1024);
  Train front = message.train, back = message.train;
  front.KeepFront(3);
  front.headers.ack_request = false;
  back.DropFront(3);
  std::vector<std::vector<std::byte>> datagrams;
  for (const Train& part : {front, back}) {
    ASSERT_TRUE(HasForm(part));
    std::vector<std::byte> form(FormBytes(part));
    const std::span<std::byte> room = EmitFormHead(part, form);
    std::ranges::copy(part.bytes, room.begin());
    Train parsed;
    ASSERT_TRUE(ParseForm(kFlow, form, parsed));
    for (auto& datagram : DatagramsOf(parsed)) datagrams.push_back(std::move(datagram));
  }
  EXPECT_EQ(datagrams, DatagramsOf(message.train));
}

TEST(TrainForm, ATrainAboveTheLimitsHasNoForm) {
  EXPECT_TRUE(HasForm(Sample(wire::Operation::kWriteOnly, 4096, kMaxFormPayloadBytes).train));
  EXPECT_FALSE(HasForm(Sample(wire::Operation::kWriteOnly, 4096, kMaxFormPayloadBytes + 1).train));
  // A UD datagram above the largest MTU, which the receiver drops and counts.
  Sample datagram(wire::Operation::kSendOnly, wire::kMaxMtuBytes, wire::kMaxMtuBytes + 1);
  datagram.train.headers.transport = wire::TransportClass::kUd;
  datagram.train.packets = 1;
  EXPECT_FALSE(HasForm(datagram.train));
  Sample mad(wire::Operation::kSendOnly, 4096, 256);
  mad.train.headers.destination_qpn = wire::kGsiQpn;
  EXPECT_FALSE(HasForm(mad.train)) << "CM messages stay datagrams";
}

TEST(TrainForm, ImpossibleBytesAreNoForm) {
  const std::vector<std::byte> form = Sample(wire::Operation::kWriteOnly, 1024, 3000).Form();
  Train train;
  for (size_t length = 0; length < form.size(); length++) {
    EXPECT_FALSE(ParseForm(kFlow, std::span(form).first(length), train)) << length;
  }
  // Any value of any byte of the head gives a form whose packets are inside it, or none.
  for (size_t at = 0; at < kMaxFormHeadBytes && at < form.size(); at++) {
    for (const int value : {0, 1, 2, 4, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = form;
      changed[at] = static_cast<std::byte>(value);
      if (!ParseForm(kFlow, changed, train)) continue;
      std::vector<wire::Packet> packets;
      AppendPackets(train, packets);
      size_t bytes = 0;
      for (const wire::Packet& packet : packets) {
        EXPECT_LE(packet.payload.size(), wire::kMaxMtuBytes);
        bytes += packet.payload.size();
      }
      EXPECT_LE(bytes, form.size());
    }
  }
}

}  // namespace
}  // namespace rdmaemu::transport
