// Which route a destination has, as `ip route get` shows it on a machine with the same addresses.
// The kernel's answers were measured on 6.1 with rdma_rxe.
#include "emulator/host/address_table.h"

#include <gtest/gtest.h>

namespace rdmaemu {
namespace {

using Kind = cm::Reach::Kind;

NetAddress Address(const char* text) { return *NetAddress::Parse(text); }

class Routes : public ::testing::Test {
 protected:
  void Add(HostDevice& device, const char* text, bool on_wire = true,
           uint32_t interface_index = 0) {
    HostAddress own = *ParseHostAddress(text);
    own.on_wire = on_wire;
    own.interface_index = interface_index;
    table.Add(device, own);
  }
  // Returns the route of the destination: "none", "silent", or the source.
  std::string To(const char* destination, const char* from = nullptr, uint32_t scope_id = 0) {
    const auto source = from != nullptr ? NetAddress::Parse(from) : std::nullopt;
    const cm::Reach reach = table.FindRoute(Address(destination), source, scope_id);
    if (reach.kind == Kind::kNone) return "none";
    return reach.kind == Kind::kSilent ? "silent" : reach.source.ToString();
  }
  void TakeDown(HostDevice& device, Device& its) {
    its.port_state = IBV_PORT_DOWN;
    device.device = &its;
  }

  HostDevice rxe0, rxe1;
  AddressTable table;
};

TEST_F(Routes, AnAddressWithoutAPrefixHasTheOneOfItsKind) {
  const auto network = [](const char* text) {
    return NetworkOf(*ParseHostAddress(text)).ToString();
  };
  EXPECT_EQ(network("127.0.1.1"), "127.0.0.0/8");
  EXPECT_EQ(network("10.77.0.1"), "10.77.0.0/24");
  EXPECT_EQ(network("fd77::1"), "fd77::/64");
  EXPECT_EQ(network("::1"), "::1/128");
  EXPECT_EQ(network("10.77.3.1/16"), "10.77.0.0/16");
  EXPECT_EQ(network("127.0.1.1/24"), "127.0.1.0/24");
  for (const char* text : {"10.77.0.1/0", "10.77.0.1/33", "fd77::1/0", "fd77::1/129", "10.77.0.1/",
                           "224.0.0.1/24", "0.0.0.0/8"}) {
    EXPECT_FALSE(ParseHostAddress(text)) << text;
  }
}

TEST_F(Routes, TheSourceIsTheAddressOnTheDestinationsNetwork) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1");
  EXPECT_EQ(To("10.77.0.9"), "10.77.0.1");
  EXPECT_EQ(To("10.88.0.9"), "10.88.0.1");
  EXPECT_EQ(To("10.99.0.9"), "none");
  EXPECT_EQ(To("fd77::9"), "none");
  EXPECT_EQ(To("127.0.0.1"), "none");
}

TEST_F(Routes, TheLongestPrefixDecidesThenTheOldestAddress) {
  Add(rxe0, "10.0.0.1/8");
  Add(rxe1, "10.88.0.1/16");
  Add(rxe0, "10.88.0.2/16");
  EXPECT_EQ(To("10.88.0.9"), "10.88.0.1");
  EXPECT_EQ(To("10.89.0.9"), "10.0.0.1");
}

TEST_F(Routes, OwnAddressesAreReachedFromEverywhere) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1", /*on_wire=*/false);
  EXPECT_EQ(To("10.88.0.1"), "10.88.0.1");
  EXPECT_EQ(To("10.88.0.1", "10.77.0.1"), "10.77.0.1");
  EXPECT_EQ(To("10.88.0.9"), "none") << "an address that is inside only is no route";
}

TEST_F(Routes, AllOfLoopbackIsOneNetwork) {
  Add(rxe0, "127.0.1.1");
  Add(rxe0, "::1");
  EXPECT_EQ(To("127.9.9.9"), "127.0.1.1");
  EXPECT_EQ(To("10.0.0.1"), "none");
  EXPECT_EQ(To("10.0.0.1", "127.0.1.1"), "none");
  EXPECT_EQ(To("::2"), "none");
}

TEST_F(Routes, APortThatIsDownHasNone) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.77.0.2");
  Device down{};
  TakeDown(rxe0, down);
  EXPECT_EQ(To("10.77.0.9"), "10.77.0.2");
  EXPECT_EQ(To("10.77.0.9", "10.77.0.1"), "none");
}

// Measured: an IPv4 destination counts as a neighbour, and an IPv6 destination is ENETUNREACH.
TEST_F(Routes, FromASourceOnlyItsDevicesRoutesCount) {
  Add(rxe0, "10.77.0.1");
  Add(rxe0, "fd77::1");
  Add(rxe0, "10.78.0.1");
  Add(rxe1, "10.88.0.1");
  Add(rxe1, "fd88::1");
  EXPECT_EQ(To("10.77.0.9", "10.77.0.1"), "10.77.0.1");
  EXPECT_EQ(To("10.78.0.9", "10.77.0.1"), "10.77.0.1");
  EXPECT_EQ(To("10.88.0.9", "10.77.0.1"), "silent");
  EXPECT_EQ(To("fd88::9", "fd77::1"), "none");
}

TEST_F(Routes, AGatewayLeadsToTheRest) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1");
  Add(rxe1, "fd88::1");
  table.SetGateways({Address("10.88.0.254"), Address("fd88::fe")});
  EXPECT_EQ(To("203.0.113.1"), "10.88.0.1");
  EXPECT_EQ(To("2001:db8::1"), "fd88::1");
  EXPECT_EQ(To("10.77.0.9"), "10.77.0.1");
  EXPECT_EQ(To("127.0.0.1"), "none");
  EXPECT_EQ(To("203.0.113.1", "10.88.0.1"), "10.88.0.1");
  EXPECT_EQ(To("203.0.113.1", "10.77.0.1"), "silent") << "it is not on that device's link";
}

TEST_F(Routes, TheNextGatewayIsTriedWhenTheFirstOnesPortIsDown) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1");
  table.SetGateways({Address("10.77.0.254"), Address("10.88.0.254")});
  EXPECT_EQ(To("203.0.113.1"), "10.77.0.1");
  Device down{};
  TakeDown(rxe0, down);
  EXPECT_EQ(To("203.0.113.1"), "10.88.0.1");
}

TEST_F(Routes, ASilentNetworkIsReachedAndNobodyAnswers) {
  Add(rxe0, "10.77.0.1");
  table.SetSilentNets({*NetPrefix::Parse("10.99.0.0/16"), *NetPrefix::Parse("10.77.0.254")});
  EXPECT_EQ(To("10.99.0.9"), "silent");
  table.SetGateways({Address("10.77.0.254")});
  EXPECT_EQ(To("203.0.113.1"), "silent") << "the gateway is the neighbour that has to answer";
}

TEST_F(Routes, AGroupLeavesByTheGatewaysNetworkElseByTheOldestAddress) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1");
  EXPECT_EQ(To("239.1.1.1"), "10.77.0.1");
  EXPECT_EQ(To("239.1.1.1", "10.88.0.1"), "10.88.0.1");
  EXPECT_EQ(To("ff0e::1"), "none");
  table.SetGateways({Address("10.88.0.254")});
  EXPECT_EQ(To("239.1.1.1"), "10.88.0.1");
}

TEST_F(Routes, ALinkLocalAddressIsWhereTheIpv4AddressInItIs) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "10.88.0.1");
  const std::string there = LinkLocalOf(Address("10.88.0.9")).ToString();
  EXPECT_EQ(To(there.c_str()), LinkLocalOf(Address("10.88.0.1")).ToString());
}

// sin6_scope_id is the interface's index (ipv6(7)).
TEST_F(Routes, ALinkLocalDestinationLeavesByTheInterfaceOfItsScope) {
  Add(rxe0, "fe80::a", true, 3);
  Add(rxe1, "fe80::c", true, 4);
  EXPECT_EQ(To("fe80::9", nullptr, 3), "fe80::a");
  EXPECT_EQ(To("fe80::9", nullptr, 4), "fe80::c");
  EXPECT_EQ(To("fe80::9", nullptr, 5), "none");
  EXPECT_EQ(To("fe80::a", nullptr, 3), "fe80::a") << "an own address";
  EXPECT_EQ(To("fe80::a", nullptr, 4), "fe80::c") << "that of another host";
}

TEST_F(Routes, ALinkLocalAddressIsOnItsInterfaceAlone) {
  Add(rxe0, "fe80::a", true, 3);
  Add(rxe1, "10.88.0.1", true, 4);
  EXPECT_TRUE(table.IsOnLink(Address("fe80::a"), 3));
  EXPECT_FALSE(table.IsOnLink(Address("fe80::a"), 4));
  EXPECT_TRUE(table.IsOnLink(LinkLocalOf(Address("10.88.0.1")), 4));
  EXPECT_FALSE(table.IsOnLink(LinkLocalOf(Address("10.88.0.1")), 3));
}

TEST_F(Routes, AnUnknownInterfaceHasAnyIndex) {
  Add(rxe0, "fe80::a");
  EXPECT_TRUE(table.IsOnLink(Address("fe80::a"), 7));
  EXPECT_EQ(To("fe80::9", nullptr, 7), "fe80::a");
}

TEST_F(Routes, AGidLeadsToADeviceOfItsSubnetWhateverTheNetworks) {
  Add(rxe0, "10.77.0.1");
  Add(rxe1, "fd88::1");
  const auto source = [&](const NetAddress& gid) {
    const auto found = table.SourceInSubnet(gid);
    return found ? found->ToString() : "none";
  };
  EXPECT_EQ(source(Address("fd88::9")), "fd88::1");
  EXPECT_EQ(source(Address("10.99.0.9")), "10.77.0.1") << "all IPv4 GIDs are of one subnet";
  EXPECT_EQ(source(Address("fd99::9")), "none");
  const NetAddress own = LinkLocalOf(Address("10.77.0.1"));
  EXPECT_EQ(source(own), own.ToString());
  EXPECT_EQ(source(LinkLocalOf(Address("10.99.0.9"))), own.ToString());
}

TEST_F(Routes, AnAddressThatGoesTakesItsRouteAlong) {
  Add(rxe0, "10.77.0.1");
  table.Remove(Address("10.77.0.1"));
  EXPECT_EQ(To("10.77.0.9"), "none");
  EXPECT_EQ(table.Find(Address("10.77.0.1")), nullptr);
}

}  // namespace
}  // namespace rdmaemu
