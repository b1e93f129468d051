// The network between embedded hosts: receivers, order and loss.
#include "emulator/embedded/embedded_network.h"

#include <gtest/gtest.h>

#include <string>

namespace rdmaemu::embedded {
namespace {

NetAddress Address(const char* text) { return *NetAddress::Parse(text); }
HostAddress Own(const char* text) { return {.address = Address(text)}; }

class EmbeddedNetworkTest : public ::testing::Test {
 protected:
  bool Send(EmbeddedNetwork::Port& from, const char* to, char what) {
    wire::UdpFlow flow{};
    flow.source = Address("10.0.0.1");
    flow.destination = Address(to);
    const std::span<std::byte> room = from.Allocate(flow, 0, 1);
    if (room.empty()) return false;
    room[0] = static_cast<std::byte>(what);
    from.Commit();
    return true;
  }
  // Returns what was delivered: "1:x " means 'x' at host 1.
  std::string Deliver() {
    std::string arrived;
    network.Deliver([&](uint32_t number, const wire::UdpFlow&, std::span<const std::byte> bytes,
                        const NetAddress&) {
      arrived += std::to_string(number) + ":" + static_cast<char>(bytes[0]) + " ";
    });
    return arrived;
  }

  EmbeddedNetwork network;
  EmbeddedNetwork::Port a{network, 0}, b{network, 1}, c{network, 2};
};

TEST_F(EmbeddedNetworkTest, DatagramsArriveInOrderAtTheirAddress) {
  ASSERT_TRUE(b.Open(Own("10.0.0.2")));
  ASSERT_TRUE(c.Open(Own("10.0.0.3")));
  Send(a, "10.0.0.2", 'x');
  Send(a, "10.0.0.3", 'y');
  Send(a, "10.0.0.2", 'z');
  EXPECT_EQ(Deliver(), "1:x 2:y 1:z ");
  EXPECT_EQ(Deliver(), "");
}

TEST_F(EmbeddedNetworkTest, WhatNobodyHasIsLostAndCounted) {
  Send(a, "10.0.0.9", 'x');
  EXPECT_EQ(Deliver(), "");
  EXPECT_EQ(network.lost(), 1u);
}

TEST_F(EmbeddedNetworkTest, AnAddressIsOneHosts) {
  ASSERT_TRUE(b.Open(Own("10.0.0.2")));
  EXPECT_EQ(c.Open(Own("10.0.0.2")).error().code, EADDRINUSE);
  c.Close(Address("10.0.0.2"));
  EXPECT_EQ(network.OwnerOf(Address("10.0.0.2")), 1u) << "it was not c's to close";
  b.Close(Address("10.0.0.2"));
  EXPECT_TRUE(c.Open(Own("10.0.0.2")));
}

TEST_F(EmbeddedNetworkTest, AGroupIsItsMembersButTheSender) {
  const NetAddress group = Address("239.1.1.1");
  ASSERT_TRUE(a.JoinGroup(Address("10.0.0.1"), group));
  Send(a, "239.1.1.1", 'x');
  EXPECT_EQ(Deliver(), "");
  ASSERT_TRUE(b.JoinGroup(Address("10.0.0.2"), group));
  ASSERT_TRUE(c.JoinGroup(Address("10.0.0.3"), group));
  Send(a, "239.1.1.1", 'y');
  EXPECT_EQ(Deliver(), "1:y 2:y ");
  b.LeaveGroup(Address("10.0.0.2"), group);
  Send(a, "239.1.1.1", 'z');
  EXPECT_EQ(Deliver(), "2:z ");
}

TEST_F(EmbeddedNetworkTest, AHostThatIsGoneGetsNothing) {
  {
    EmbeddedNetwork::Port gone{network, 3};
    ASSERT_TRUE(gone.Open(Own("10.0.0.4")));
    ASSERT_TRUE(gone.JoinGroup(Address("10.0.0.4"), Address("239.1.1.1")));
    Send(a, "10.0.0.4", 'x');
  }
  EXPECT_EQ(Deliver(), "");
  Send(a, "239.1.1.1", 'y');
  EXPECT_EQ(Deliver(), "");
  EXPECT_EQ(network.OwnerOf(Address("10.0.0.4")), std::nullopt);
}

TEST_F(EmbeddedNetworkTest, MoreThanItHoldsHasToWait) {
  ASSERT_TRUE(b.Open(Own("10.0.0.2")));
  for (size_t i = 0; i < EmbeddedNetwork::kMaxInFlight; i++) ASSERT_TRUE(Send(a, "10.0.0.2", 'x'));
  EXPECT_FALSE(Send(a, "10.0.0.2", 'y'));
  Deliver();
  EXPECT_TRUE(Send(a, "10.0.0.2", 'y'));
}

}  // namespace
}  // namespace rdmaemu::embedded
