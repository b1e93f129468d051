// Multicast between the sockets of one machine, on the loopback interface.
#include "emulator/runtime/group_port.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cstring>
#include <string>

#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/udp_network.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

// Only this test uses these addresses and groups.
const NetAddress kFirstGroup = NetAddress::Ipv4(0x7f4d0201),
                 kSecondGroup = NetAddress::Ipv4(0x7f4d0202);
const NetAddress kGroup = NetAddress::Ipv4(0xef4d0201), kOther = NetAddress::Ipv4(0xef4d0202);

// A host's network with one address.
struct Machine {
  explicit Machine(const NetAddress& address) : own(address), epoll_fd(epoll_create1(0)) {
    Result<UdpPort> port = UdpPort::Open(address, 0);
    EXPECT_TRUE(port);
    network.Add(std::move(*port));
    EXPECT_TRUE(network.Watch(epoll_fd.get()));
  }
  void Send(const NetAddress& group, const std::string& text) {
    const wire::UdpFlow flow{own, group, wire::kRoceUdpPort, wire::kRoceUdpPort};
    const std::span<std::byte> room = network.Allocate(flow, 0, text.size());
    ASSERT_EQ(room.size(), text.size());
    std::memcpy(room.data(), text.data(), text.size());
    network.Commit();
    network.Flush();
  }
  // Returns the next datagram with its group and the address at which it was received. Returns ""
  // if there is none. A datagram on loopback is received when its send has returned.
  std::string Take() {
    std::string taken;
    epoll_event event;
    if (epoll_wait(epoll_fd.get(), &event, 1, 0) != 1) return taken;
    EXPECT_EQ(KindOf(event), EventKind::kGroupPort);
    network.ReceiveGroup(NumberOf(event), [&](const wire::UdpFlow& flow, WireForm, auto payloads,
                                              const NetAddress& at) {
      EXPECT_EQ(at, own);
      for (const std::span<const std::byte> payload : payloads) {
        taken += std::string(reinterpret_cast<const char*>(payload.data()), payload.size()) +
                 " from " + flow.source.ToString() + " to " + flow.destination.ToString();
      }
    });
    return taken;
  }

  NetAddress own;
  UniqueFd epoll_fd;
  UdpNetwork network;
};

TEST(GroupPort, EachMemberHasACopyAndOthersHaveNone) {
  Machine first(kFirstGroup), second(kSecondGroup);
  ASSERT_TRUE(first.network.JoinGroup(kFirstGroup, kGroup));
  ASSERT_TRUE(second.network.JoinGroup(kSecondGroup, kGroup));
  ASSERT_TRUE(second.network.JoinGroup(kSecondGroup, kOther));
  first.Send(kGroup, "one");
  const std::string expected = "one from 127.77.2.1 to 239.77.2.1";
  EXPECT_EQ(first.Take(), expected);
  EXPECT_EQ(second.Take(), expected);
  first.Send(kOther, "two");
  EXPECT_EQ(first.Take(), "");
  EXPECT_EQ(second.Take(), "two from 127.77.2.1 to 239.77.2.2");
  EXPECT_EQ(second.Take(), "");
}

TEST(GroupPort, WhoHasLeftHasNothingMore) {
  Machine first(kFirstGroup), second(kSecondGroup);
  ASSERT_TRUE(second.network.JoinGroup(kSecondGroup, kGroup));
  first.Send(kGroup, "late");
  second.network.LeaveGroup(kSecondGroup, kGroup);
  EXPECT_EQ(second.Take(), "");
  first.Send(kGroup, "gone");
  EXPECT_EQ(second.Take(), "");
  ASSERT_TRUE(second.network.JoinGroup(kSecondGroup, kGroup));
  first.Send(kGroup, "back");
  EXPECT_EQ(second.Take(), "back from 127.77.2.1 to 239.77.2.1");
}

TEST(GroupPort, JoiningTakesAPortOfTheAddressAndAGroupOfItsFamily) {
  Machine first(kFirstGroup);
  EXPECT_EQ(first.network.JoinGroup(kSecondGroup, kGroup).error().code, EADDRNOTAVAIL);
  const NetAddress ipv6 = *NetAddress::Parse("ff1e::1");
  EXPECT_EQ(first.network.JoinGroup(kFirstGroup, ipv6).error().code, EAFNOSUPPORT);
  EXPECT_FALSE(first.network.ReceiveGroup(7, [](const auto&, auto, auto, const auto&) {}));
}

}  // namespace
}  // namespace rdmaemu::runtime
