#include "emulator/runtime/udp_port.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/runtime/udp_network.h"
#include "emulator/runtime/udp_receiver.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

// Only this test uses these addresses.
const NetAddress kFirstPortAddress = NetAddress::Ipv4(0x7f4d0101),
                 kSecondPortAddress = NetAddress::Ipv4(0x7f4d0102);

wire::UdpFlow FromFirstToSecond() {
  return {kFirstPortAddress, kSecondPortAddress, wire::kRoceUdpPort, wire::kRoceUdpPort};
}

bool Send(UdpPort& port, const std::string& text, uint8_t traffic_class = 0) {
  const std::span<std::byte> room = port.Allocate(FromFirstToSecond(), traffic_class, text.size());
  if (room.empty()) return false;
  std::memcpy(room.data(), text.data(), text.size());
  port.Commit();
  return true;
}

// Returns all received datagrams. Waits for the first.
std::vector<std::string> Receive(UdpPort& port) {
  pollfd readable{port.fd(), POLLIN, 0};
  poll(&readable, 1, 5000);
  std::vector<std::string> received;
  UdpReceiver receiver;
  while (receiver.Receive(
      port.fd(), port.address(),
      [&](const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> payloads) {
        EXPECT_EQ(flow.source, kFirstPortAddress);
        EXPECT_EQ(flow.destination, kSecondPortAddress);
        EXPECT_EQ(flow.source_port, wire::kRoceUdpPort);
        EXPECT_EQ(flow.destination_port, wire::kRoceUdpPort);
        for (const std::span<const std::byte> payload : payloads) {
          received.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
        }
      })) {
  }
  return received;
}

TEST(UdpPort, PayloadsOfWholePacketsAreAligned) {
  Result<UdpPort> port = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(port);
  constexpr size_t kBth = 12, kReth = 16, kIcrc = 4;
  for (int burst = 0; burst < 2; burst++) {
    size_t headers = kBth + kReth;
    for (int i = 0; i < 100; i++, headers = kBth) {
      const std::span<std::byte> room =
          port->Allocate(FromFirstToSecond(), 0, headers + 1024 + kIcrc);
      ASSERT_FALSE(room.empty());
      const auto payload = reinterpret_cast<uintptr_t>(room.data()) + headers;
      EXPECT_EQ(payload % UdpPort::kPayloadAlignment, 0u) << i;
      port->Commit();
    }
    port->Flush();
  }
}

TEST(UdpPort, BothEndsCountTheBytesOfDatagrams) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(Send(*first, std::string(1000, 'a')) && Send(*first, std::string(1000, 'b')) &&
              Send(*first, std::string(10, 'c')));
  EXPECT_EQ(first->sent_bytes(), 0u) << "pending datagrams";
  first->Flush();
  EXPECT_EQ(first->sent_bytes(), 2010u);
  UdpReceiver receiver;
  pollfd readable{second->fd(), POLLIN, 0};
  for (int i = 0; i < 3 && receiver.received_bytes() < 2010; i++) {
    ASSERT_EQ(poll(&readable, 1, 5000), 1);
    receiver.Receive(second->fd(), second->address(), [](const auto&, const auto&) {});
  }
  EXPECT_EQ(receiver.received_bytes(), 2010u);
}

TEST(UdpPort, DatagramsKeepTheirBoundariesAndOrderInWhateverBurstsTheyTravel) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  std::vector<std::string> sent;
  // Equal ones, a short one, longer ones, a run longer than one burst, another traffic class.
  for (const size_t bytes : {100, 100, 100, 40, 200, 200}) sent.emplace_back(bytes, 'a');
  for (int i = 0; i < 70; i++) sent.emplace_back(1000, static_cast<char>('0' + i % 10));
  for (const std::string& text : sent) ASSERT_TRUE(Send(*first, text));
  ASSERT_TRUE(Send(*first, std::string(1000, 'T'), 0x20));
  sent.emplace_back(1000, 'T');
  first->Flush();
  EXPECT_FALSE(first->has_pending());
  EXPECT_EQ(Receive(*second), sent);
}

// No socket is bound to the port, so the kernel returns an ICMP error, on loopback at once.
TEST(UdpPort, TellsWhereNobodyListensWhenItIsAsked) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(first);
  ASSERT_TRUE(Send(*first, "silent"));
  first->Flush();
  EXPECT_TRUE(first->TakeRefused().empty());
  first->ReportRefusals();
  ASSERT_TRUE(Send(*first, "heard"));
  first->Flush();
  EXPECT_EQ(first->TakeRefused(), std::vector<NetAddress>{kSecondPortAddress});
  EXPECT_TRUE(first->TakeRefused().empty());
}

// The next call returns the error of one datagram, but loses no datagram itself.
TEST(UdpPort, ARefusalLosesNoOtherDatagram) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(first);
  first->ReportRefusals();
  ASSERT_TRUE(Send(*first, "refused"));
  first->Flush();
  Result<UdpPort> second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(second);
  ASSERT_TRUE(Send(*first, "arrives"));
  first->Flush();
  EXPECT_EQ(Receive(*second), std::vector<std::string>{"arrives"});
}

TEST(UdpPort, MoreThanItsBufferHoldsGoesOutByItself) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  for (size_t i = 0; i < UdpPort::kMaxBatch + 1; i++) ASSERT_TRUE(Send(*first, "x"));
  EXPECT_TRUE(first->has_pending());
  EXPECT_EQ(Receive(*second).size(), UdpPort::kMaxBatch);
}

// Packets of 4 KiB as in a WRITE: a longer first packet, then more packets than one burst holds.
TEST(UdpPort, ARunLongerThanABurstKeepsItsDatagrams) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  std::vector<size_t> sizes(40, 4112);
  sizes.front() = 4128;
  sizes.back() = 1000;
  std::vector<std::span<std::byte>> rooms(sizes.size());
  ASSERT_EQ(first->AllocateRun(FromFirstToSecond(), 0, sizes, rooms), sizes.size());
  std::vector<std::string> sent;
  for (size_t i = 0; i < rooms.size(); i++) {
    ASSERT_EQ(rooms[i].size(), sizes[i]);
    sent.emplace_back(sizes[i], static_cast<char>('0' + i));
    std::memcpy(rooms[i].data(), sent.back().data(), sizes[i]);
  }
  first->Commit();
  first->Flush();
  EXPECT_EQ(Receive(*second), sent);
}

TEST(UdpPort, TheLargestDatagramAndTheLargestBurstFit) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  std::vector<std::string> sent{std::string(UdpPort::kMaxDatagramBytes, 'L')};
  for (size_t i = 0; i < UdpPort::kMaxSegments; i++) {
    sent.emplace_back(UdpPort::kMaxDatagramBytes / UdpPort::kMaxSegments, 's');
  }
  for (const std::string& text : sent) ASSERT_TRUE(Send(*first, text));
  first->Flush();
  EXPECT_EQ(Receive(*second), sent);
}

TEST(UdpPort, ARunGetsWhatRoomThereIs) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  for (size_t i = 0; i < UdpPort::kMaxBatch - 3; i++) ASSERT_TRUE(Send(*first, "x"));
  const std::vector<size_t> sizes(8, 1);
  std::vector<std::span<std::byte>> rooms(sizes.size());
  EXPECT_EQ(first->AllocateRun(FromFirstToSecond(), 0, sizes, rooms), 3u);
  first->Commit();
  // Pending datagrams are sent to make room.
  EXPECT_EQ(first->AllocateRun(FromFirstToSecond(), 0, sizes, rooms), sizes.size());
  first->Flush();
  EXPECT_EQ(Receive(*second).size(), UdpPort::kMaxBatch);
}

// Datagrams that are sent early are still in the sender's cache.
TEST(UdpPort, EnoughBytesGoOutByThemselves) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  size_t sent = 0;
  for (const std::string text(4096, 'x'); sent < UdpPort::kFlushBytes; sent += text.size()) {
    ASSERT_TRUE(Send(*first, text));
  }
  EXPECT_FALSE(first->has_pending());
  EXPECT_EQ(Receive(*second).size(), sent / 4096);
}

TEST(UdpPort, HandsOverWhatCameOfOneFlowTogetherAndOfAnotherApart) {
  const NetAddress third_address = NetAddress::Ipv4(0x7f4d0103);
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0),
                  third = UdpPort::Open(third_address, 0);
  ASSERT_TRUE(first && second && third);
  const auto send_from = [&](UdpPort& port, char what) {
    const wire::UdpFlow flow{port.address(), kSecondPortAddress, wire::kRoceUdpPort,
                             wire::kRoceUdpPort};
    for (int i = 0; i < 3; i++) {
      port.Allocate(flow, 0, 8)[0] = static_cast<std::byte>(what);
      port.Commit();
    }
    port.Flush();
  };
  send_from(*first, 'f');
  send_from(*third, 't');
  send_from(*first, 'f');
  std::string calls;
  UdpReceiver receiver;
  while (calls.size() < 9) {
    pollfd readable{second->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 5000), 1);
    receiver.Receive(
        second->fd(), second->address(),
        [&](const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> payloads) {
          for (const std::span<const std::byte> payload : payloads) {
            EXPECT_EQ(flow.source,
                      payload[0] == std::byte{'f'} ? kFirstPortAddress : third_address);
            calls += static_cast<char>(payload[0]);
          }
        });
  }
  EXPECT_EQ(calls, "ffftttfff");
}

TEST(UdpPort, WhatWasNotCommittedIsForgotten) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0),
                  second = UdpPort::Open(kSecondPortAddress, 0);
  ASSERT_TRUE(first && second);
  const std::array<size_t, 3> sizes{10, 20, 30};
  std::array<std::span<std::byte>, 3> rooms;
  EXPECT_FALSE(first->Allocate(FromFirstToSecond(), 0, 10).empty());
  EXPECT_EQ(first->AllocateRun(FromFirstToSecond(), 0, sizes, rooms), 3u);
  EXPECT_FALSE(first->has_pending());
  ASSERT_TRUE(Send(*first, "kept"));
  EXPECT_EQ(first->AllocateRun(FromFirstToSecond(), 0, sizes, rooms), 3u);
  first->Flush();
  EXPECT_EQ(Receive(*second), std::vector<std::string>{"kept"});
}

TEST(UdpPort, RefusesWhatNoDatagramCanHold) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->Allocate(FromFirstToSecond(), 0, 0).empty());
  EXPECT_TRUE(first->Allocate(FromFirstToSecond(), 0, UdpPort::kMaxDatagramBytes + 1).empty());
  wire::UdpFlow to_ipv6 = FromFirstToSecond();
  to_ipv6.destination = *NetAddress::Parse("::1");
  EXPECT_TRUE(first->Allocate(to_ipv6, 0, 10).empty());
}

TEST(UdpPort, AnAddressInUseOrOfNobodyHereIsAnError) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(UdpPort::Open(kFirstPortAddress, 0).error(), Error{EADDRINUSE});
  EXPECT_EQ(UdpPort::Open(NetAddress::Ipv4(0xc6336401), 0).error(), Error{EADDRNOTAVAIL});
}

TEST(UdpNetwork, SendsThroughTheSocketOfTheSourceOnly) {
  Result<UdpPort> first = UdpPort::Open(kFirstPortAddress, 0);
  ASSERT_TRUE(first);
  UdpNetwork network;
  network.Add(std::move(*first));
  EXPECT_FALSE(network.Allocate(FromFirstToSecond(), 0, 10).empty());
  wire::UdpFlow other = FromFirstToSecond();
  std::swap(other.source, other.destination);
  EXPECT_TRUE(network.Allocate(other, 0, 10).empty());
  network.Commit();  // of nothing
}

}  // namespace
}  // namespace rdmaemu::runtime
