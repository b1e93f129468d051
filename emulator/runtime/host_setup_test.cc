#include "emulator/runtime/host_setup.h"

#include <gtest/gtest.h>

namespace rdmaemu::runtime {
namespace {

const std::vector<InterfaceAddress> kMachine = {
    {*NetAddress::Parse("127.0.0.1"), 1, 65536, true},
    {*NetAddress::Parse("::1"), 1, 65536, true},
    {*NetAddress::Parse("192.0.2.7"), 2, 1400, false, 96 + 20},
    {*NetAddress::Parse("fe80::1"), 2, 1400, false},
};

std::vector<std::string> Addresses(const DeviceConfig& device) {
  std::vector<std::string> texts;
  for (const HostAddress& address : device.addresses) {
    texts.push_back(address.address.ToString() + (address.on_wire ? "" : " inside"));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(MakeHostConfig, TheDefaultIsLoopbackOnTheWireAndTheMachinesOwnInside) {
  const auto config = MakeHostConfig({}, kMachine);
  ASSERT_TRUE(config);
  ASSERT_EQ(config->devices.size(), 1u);
  EXPECT_EQ(config->devices[0].name, "rxe0");
  EXPECT_EQ(config->devices[0].profile.name, "rxe");
  EXPECT_EQ(Addresses(config->devices[0]), (Texts{"127.0.0.1", "::1", "192.0.2.7 inside"}));
}

TEST(MakeHostConfig, AnAddressHasItsInterfacesMtuAndAllOf127Loopbacks) {
  const auto config = MakeHostConfig({.addresses = {"192.0.2.7", "127.0.1.9"}}, kMachine);
  ASSERT_TRUE(config);
  const auto& addresses = config->devices[0].addresses;
  EXPECT_EQ(addresses[0].link_mtu_bytes, 1400u);
  EXPECT_EQ(addresses[0].interface_index, 2u);
  EXPECT_TRUE(addresses[0].on_wire);
  EXPECT_EQ(addresses[1].link_mtu_bytes, 65536u);
}

std::string Network(const HostOptions& options) {
  const auto config = MakeHostConfig(options, kMachine);
  return config ? NetworkOf(config->devices[0].addresses[0]).ToString() : config.error();
}

TEST(MakeHostConfig, ThePrefixIsTheGivenOneElseTheInterfacesElseTheDefault) {
  EXPECT_EQ(Network({.addresses = {"192.0.2.7/28"}}), "192.0.2.0/28");
  EXPECT_EQ(Network({.addresses = {"192.0.2.7"}}), "192.0.0.0/20");
  EXPECT_EQ(Network({.addresses = {"198.51.100.7"}}), "198.51.100.0/24");
  EXPECT_EQ(Network({.addresses = {"127.0.1.9"}}), "127.0.0.0/8");
}

TEST(MakeHostConfig, AGatewayIsANeighbour) {
  const auto near =
      MakeHostConfig({.addresses = {"192.0.2.7"}, .gateways = {"192.0.15.1"}}, kMachine);
  ASSERT_TRUE(near) << near.error();
  EXPECT_EQ(near->gateways, std::vector<NetAddress>{*NetAddress::Parse("192.0.15.1")});
  for (const char* wrong : {"192.0.16.1", "192.0.2.7", "224.0.0.1", "gateway"}) {
    const auto config = MakeHostConfig({.addresses = {"192.0.2.7"}, .gateways = {wrong}}, kMachine);
    ASSERT_FALSE(config) << wrong;
    EXPECT_NE(config.error().find(wrong), std::string::npos) << config.error();
  }
}

TEST(MakeHostConfig, DealsAddressesOutToDevicesInTurn) {
  const auto config = MakeHostConfig(
      {.addresses = {"127.0.1.1", "127.0.1.2", "127.0.1.3"}, .devices = {"one", "two=rxe"}},
      kMachine);
  ASSERT_TRUE(config);
  EXPECT_EQ(Addresses(config->devices[0]), (Texts{"127.0.1.1", "127.0.1.3"}));
  EXPECT_EQ(Addresses(config->devices[1]), (Texts{"127.0.1.2"}));
}

TEST(MakeHostConfig, RefusesWhatNamesAThingTwiceOrLeavesADeviceWithoutAddress) {
  EXPECT_FALSE(MakeHostConfig({.addresses = {"127.0.1.1", "127.0.1.1"}}, kMachine));
  EXPECT_FALSE(MakeHostConfig({.devices = {"one", "one"}}, kMachine));
  EXPECT_FALSE(MakeHostConfig({.addresses = {"127.0.1.1"}, .devices = {"one", "two"}}, kMachine));
}

TEST(MakeHostConfig, ADeviceHasExactlyTheAddressesAfterItsName) {
  const auto config =
      MakeHostConfig({.addresses = {"127.0.1.3", "127.0.1.4"},
                      .devices = {"one=mlx5-roce@127.0.1.1/24@127.0.1.2", "two", "three@::1"}},
                     kMachine);
  ASSERT_TRUE(config) << config.error();
  ASSERT_EQ(config->devices.size(), 3u);
  ASSERT_EQ(config->devices[0].addresses.size(), 2u);
  EXPECT_EQ(config->devices[0].profile.name, "mlx5-roce");
  EXPECT_EQ(config->devices[0].addresses[1].address, *NetAddress::Parse("127.0.1.2"));
  ASSERT_EQ(config->devices[1].addresses.size(), 2u);
  EXPECT_EQ(config->devices[1].addresses[0].address, *NetAddress::Parse("127.0.1.3"));
  ASSERT_EQ(config->devices[2].addresses.size(), 1u);
  EXPECT_EQ(config->devices[2].addresses[0].address, *NetAddress::Parse("::1"));
}

TEST(MakeHostConfig, RefusesOwnAddressesThatAreWrong) {
  const auto error = [](std::vector<std::string> addresses, std::vector<std::string> devices) {
    const auto config = MakeHostConfig(
        {.addresses = std::move(addresses), .devices = std::move(devices)}, kMachine);
    return config ? std::string() : config.error();
  };
  EXPECT_NE(error({}, {"a@127.0.1.1", "b@127.0.1.1"}).find("given twice"), std::string::npos);
  EXPECT_NE(error({"127.0.1.1"}, {"a@127.0.1.1", "b"}).find("given twice"), std::string::npos);
  EXPECT_NE(error({}, {"a@127.0.1.1", "b"}).find("device b has no address"), std::string::npos);
  EXPECT_NE(error({"127.0.1.2"}, {"a@127.0.1.1"}).find("belongs to no device"), std::string::npos);
  EXPECT_NE(error({}, {"a@nowhere"}).find("nowhere"), std::string::npos);
  EXPECT_NE(error({}, {"a@"}).find("not the address"), std::string::npos);
  EXPECT_NE(error({}, {"a=nosuch@127.0.1.1"}).find("nosuch"), std::string::npos);
  EXPECT_NE(error({}, {"a@127.0.1.1", "a@127.0.1.2"}).find("a is given twice"), std::string::npos);
}

TEST(CheckLids, RefusesAnInfiniBandDeviceWhoseAddressGivesNoLid) {
  const auto error = [](std::vector<std::string> devices) {
    const auto config = MakeHostConfig({.devices = std::move(devices)}, kMachine);
    EXPECT_TRUE(config);
    const auto checked = CheckLids(*config);
    return checked ? std::string() : checked.error();
  };
  EXPECT_EQ(error({"a=mlx5-ib"}), "");
  EXPECT_EQ(error({"a=mlx5-ib@10.0.0.1"}), "");
  EXPECT_EQ(error({"a=mlx5-ib@10.0.191.255"}), "");
  EXPECT_EQ(error({"a=mlx5-ib@::1@10.0.0.1"}), "");
  EXPECT_EQ(error({"a=rxe@10.0.192.0", "b=mlx5-ib@10.0.0.1"}), "");
  EXPECT_NE(error({"a=mlx5-ib@10.0.192.0"}).find("10.0.192.0 are not in 1"), std::string::npos);
  EXPECT_NE(error({"a=mlx5-ib@10.0.0.0"}).find("10.0.0.0 are not in 1"), std::string::npos);
  EXPECT_NE(error({"a=mlx5-ib@10.0.192.0@10.0.0.1"}).find("device a has no LID"),
            std::string::npos);
  EXPECT_NE(error({"a=mlx5-ib@::1"}).find("has no IPv4 address"), std::string::npos);
}

TEST(MakeHostConfig, EveryHostHasASeedOfItsOwnOf256Bits) {
  const auto first = MakeHostConfig({}, kMachine), second = MakeHostConfig({}, kMachine);
  ASSERT_TRUE(first && second);
  for (size_t word = 0; word < first->seed.key.size(); word++) {
    EXPECT_NE(first->seed.key[word], second->seed.key[word]) << "once in 4 billion by chance";
  }
}

TEST(ParseDeviceOption, NamesTheProfilesThatThereAre) {
  const auto unknown = ParseDeviceOption("rxe0=nosuch");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().find("nosuch"), std::string::npos);
  EXPECT_NE(unknown.error().find(BuiltInProfileNames()), std::string::npos);
  for (const char* text : {"", "=rxe", "a/b", "a b=rxe"}) EXPECT_FALSE(ParseDeviceOption(text));
}

TEST(ParseAddressOption, TakesAddressesOfOneHostOnly) {
  EXPECT_TRUE(ParseAddressOption("127.0.1.1"));
  EXPECT_TRUE(ParseAddressOption("2001:db8::1"));
  EXPECT_EQ(ParseAddressOption("10.77.0.1/16")->prefix_bits, 96 + 16);
  EXPECT_EQ(ParseAddressOption("10.77.0.1")->prefix_bits, 0);
  for (const char* text :
       {"", "localhost", "127.0.0", "0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1",
        "127.0.0.1:4791", "127.0.0.1/", "127.0.0.1/33", "127.0.0.1/0", "::1/129"}) {
    EXPECT_FALSE(ParseAddressOption(text)) << text;
  }
}

TEST(ParseAddressOption, ALinkLocalAddressNeedsItsInterface) {
  EXPECT_FALSE(ParseAddressOption("fe80::1"));
  EXPECT_FALSE(ParseAddressOption("fe80::1%nosuchinterface"));
  for (const char* text : {"fe80::1%lo", "fe80::1%lo/64"}) {
    const auto scoped = ParseAddressOption(text);
    ASSERT_TRUE(scoped) << text;
    EXPECT_NE(scoped->interface_index, 0u);
    EXPECT_EQ(NetworkOf(*scoped).ToString(), "fe80::/64");
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
