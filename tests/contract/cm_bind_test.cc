// rdma_bind_addr(3) and rdma_listen(3) beyond one id: conflicts in a process and between processes,
// wildcards of both families, AFONLY and REUSEADDR, loopback and link-local addresses, the backlog.
#include <arpa/inet.h>
#include <net/if.h>

#include <cerrno>
#include <set>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Bind : public DirectTest {
 protected:
  CmId Id(rdma_port_space space = RDMA_PS_TCP) { return NewId(channel.get(), space); }
  static sockaddr_in6 Ipv6(const std::string& text, uint16_t port, uint32_t scope = 0) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_scope_id = scope;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &address.sin6_addr), 1);
    return address;
  }
  static int BindTo6(rdma_cm_id* id, const std::string& text, uint16_t port, uint32_t scope = 0) {
    sockaddr_in6 to = Ipv6(text, port, scope);
    return ErrnoOf(rdma_bind_addr(id, Cast(to)));
  }
  static int Set(rdma_cm_id* id, int option, int value) {
    return ErrnoOf(rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value));
  }
};

// ---- ports

TEST_F(Bind, PortZeroTakesAFreeOneEachTime) {
  std::vector<CmId> ids;
  std::set<uint16_t> ports;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(Id());
    ASSERT_EQ(BindTo(ids.back().get(), here), 0);
    EXPECT_GE(PortOf(ids.back().get()), 1024);
    ports.insert(PortOf(ids.back().get()));
  }
  EXPECT_EQ(ports.size(), ids.size());
}

TEST_F(Bind, TheBoundAddressIsTheIds) {
  const uint16_t port = UnusedPort();
  const CmId id = Id();
  ASSERT_EQ(BindTo(id.get(), here, port), 0);
  sockaddr_in local;
  memcpy(&local, rdma_get_local_addr(id.get()), sizeof local);
  EXPECT_EQ(local.sin_family, AF_INET);
  EXPECT_EQ(local.sin_addr.s_addr, SocketAddress(here, 0).sin_addr.s_addr);
  EXPECT_EQ(ntohs(local.sin_port), port);
  EXPECT_EQ(ntohs(rdma_get_src_port(id.get())), port);
  EXPECT_EQ(rdma_get_dst_port(id.get()), 0);
}

TEST_F(Bind, AFailedBindMayBeTriedElsewhere) {
  const uint16_t taken = UnusedPort();
  const CmId holder = Id(), id = Id();
  ASSERT_EQ(BindTo(holder.get(), here, taken), 0);
  EXPECT_EQ(BindTo(id.get(), here, taken), EADDRINUSE);
  // The errno of a foreign address now depends on the kernel's state after the first try.
  EXPECT_NE(BindTo(id.get(), "192.0.2.55", 0), 0);
  EXPECT_EQ(BindTo(id.get(), here, 0), 0);
}

TEST_F(Bind, APortIsTakenForAllProcessesAndFreeWhenItsHolderEnds) {
  const uint16_t port = UnusedPort();
  Side other(Place::kLocalProcess);
  const int theirs = other.CreateId();
  ASSERT_EQ(other.Bind(theirs, here, port), 0);
  const CmId id = Id();
  EXPECT_EQ(BindTo(id.get(), here, port), EADDRINUSE);
  EXPECT_EQ(BindTo(id.get(), "0.0.0.0", port), EADDRNOTAVAIL);
  ASSERT_EQ(other.DestroyId(theirs), 0);
  EXPECT_EQ(BindTo(id.get(), here, port), 0);
  const int again = other.CreateId();
  EXPECT_EQ(other.Bind(again, here, port), EADDRINUSE);
}

TEST_F(Bind, AKilledProcesssPortIsFreeAgain) {
  const uint16_t port = UnusedPort();
  Side other(Place::kLocalProcess);
  ASSERT_EQ(other.Bind(other.CreateId(), here, port), 0);
  other.worker().Kill();
  int error = EADDRINUSE;
  for (int waited_ms = 0; error == EADDRINUSE && waited_ms < kPatience_ms; waited_ms += 20) {
    const CmId id = Id();
    error = BindTo(id.get(), here, port);
    poll(nullptr, 0, 20);
  }
  EXPECT_EQ(error, 0);
}

TEST_F(Bind, ReuseBetweenProcessesBindsBothAndOneListens) {
  const uint16_t port = UnusedPort();
  Side other(Place::kLocalProcess);
  const int theirs = other.CreateId();
  ASSERT_EQ(other.SetReuse(theirs, 1), 0);
  ASSERT_EQ(other.Bind(theirs, here, port), 0);
  {
    const CmId id = Id();
    ASSERT_EQ(Set(id.get(), RDMA_OPTION_ID_REUSEADDR, 1), 0);
    EXPECT_EQ(BindTo(id.get(), here, port), 0);
    EXPECT_EQ(ErrnoOf(rdma_listen(id.get(), 1)), EADDRINUSE);
    EXPECT_EQ(other.Listen(theirs), EADDRINUSE);
  }
  EXPECT_EQ(other.Listen(theirs), 0);
}

TEST_F(Bind, AListenerIsNotReusedAnyMore) {
  const uint16_t port = UnusedPort();
  const CmId first = Id(), second = Id();
  ASSERT_EQ(Set(first.get(), RDMA_OPTION_ID_REUSEADDR, 1), 0);
  ASSERT_EQ(BindTo(first.get(), here, port), 0);
  ASSERT_EQ(rdma_listen(first.get(), 1), 0);
  EXPECT_EQ(Set(first.get(), RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
  ASSERT_EQ(Set(second.get(), RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(BindTo(second.get(), here, port), EADDRINUSE);
}

TEST_F(Bind, ReuseIsTakenBackBeforeBindingOnly) {
  const CmId id = Id();
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_REUSEADDR, 0), 0);
  ASSERT_EQ(BindTo(id.get(), here), 0);
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
}

TEST_F(Bind, ConnectionsShareTheirListenersPort) {
  const CmId listener = Listener(passive_channel.get());
  const CmId active = Requesting(listener.get());
  const CmId passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(PortOf(passive.get()), PortOf(listener.get()));
  EXPECT_EQ(ntohs(rdma_get_dst_port(passive.get())), PortOf(active.get()));
}

TEST_F(Bind, ActiveIdsToOnePortHavePortsOfTheirOwn) {
  const CmId a = Resolved(7777), b = Resolved(7777);
  EXPECT_NE(PortOf(a.get()), PortOf(b.get()));
}

// ---- wildcards and families

TEST_F(Bind, WildcardsOfBothFamiliesExcludeEachOther) {
  const CmId six = Id(), four = Id();
  ASSERT_EQ(BindTo6(six.get(), "::", 0), 0);
  EXPECT_EQ(BindTo(four.get(), "0.0.0.0", PortOf(six.get())), EADDRNOTAVAIL);
}

TEST_F(Bind, AnIpv6OnlyWildcardLeavesIpv4Alone) {
  const CmId six = Id(), four = Id();
  ASSERT_EQ(Set(six.get(), RDMA_OPTION_ID_AFONLY, 1), 0);
  // A port that the system chose is unused. Another test may take a port that was free a moment
  // ago.
  ASSERT_EQ(BindTo6(six.get(), "::", 0), 0);
  EXPECT_EQ(BindTo(four.get(), "0.0.0.0", PortOf(six.get())), 0);
  EXPECT_EQ(ErrnoOf(rdma_listen(six.get(), 1)), 0);
  EXPECT_EQ(ErrnoOf(rdma_listen(four.get(), 1)), 0);
}

TEST_F(Bind, AnIpv6WildcardListenerTakesIpv4Requests) {
  const CmId six = NewId(passive_channel.get());
  ASSERT_EQ(BindTo6(six.get(), "::", 0), 0);
  ASSERT_EQ(rdma_listen(six.get(), 1), 0);
  const CmId active = Requesting(six.get());
  const CmId passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(rdma_get_local_addr(passive.get())->sa_family, AF_INET);
}

TEST_F(Bind, AnIpv6OnlyListenerRefusesIpv4Requests) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  const CmId six = NewId(passive_channel.get());
  ASSERT_EQ(Set(six.get(), RDMA_OPTION_ID_AFONLY, 1), 0);
  ASSERT_EQ(BindTo6(six.get(), "::", 0), 0);
  ASSERT_EQ(rdma_listen(six.get(), 1), 0);
  const CmId active = Requesting(six.get());
  const CmEvent rejected = NextEvent(channel.get());
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->event, RDMA_CM_EVENT_REJECTED);
}

TEST_F(Bind, TheFamilyOptionIsForIdsThatDoNotListen) {
  const CmId id = Id();
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_AFONLY, 1), 0);
  ASSERT_EQ(BindTo(id.get(), here), 0);
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_AFONLY, 0), 0);
  ASSERT_EQ(rdma_listen(id.get(), 1), 0);
  EXPECT_EQ(Set(id.get(), RDMA_OPTION_ID_AFONLY, 1), EINVAL);
}

TEST_F(Bind, ALinkLocalAddressNeedsItsScope) {
  const CmId id = Id();
  EXPECT_EQ(BindTo6(id.get(), "fe80::1234", 0), EINVAL);
}

TEST_F(Bind, AForeignIpv6AddressIsRefused) {
  const CmId id = Id();
  EXPECT_EQ(BindTo6(id.get(), "2001:db8::77", 0), EADDRNOTAVAIL);
}

TEST_F(Bind, AnUnknownFamilyIsInvalid) {
  const CmId id = Id();
  sockaddr_in address = SocketAddress(here, 0);
  address.sin_family = AF_UNIX;
  EXPECT_EQ(ErrnoOf(rdma_bind_addr(id.get(), Cast(address))), EINVAL);
}

TEST_F(Bind, SourceAndDestinationHaveOneFamily) {
  const CmId id = Id();
  ASSERT_EQ(BindTo(id.get(), here), 0);
  sockaddr_in6 to = Ipv6("fd66::2", 1);
  EXPECT_EQ(ErrnoOf(rdma_resolve_addr(id.get(), nullptr, Cast(to), 100)), EINVAL);
}

// ---- loopback

// The kernel treats a loopback address as a wildcard, for which a RoCE device has no route.
class Loopback : public Bind {
 protected:
  void SetUp() override {
    if (here.starts_with("127.")) GTEST_SKIP() << "the device's own address is a loopback address";
  }
  const std::string loopback = "127.0.0.1";
};

void ExpectADeviceAndNoRoute(const std::string& address) {
  const CmId id = NewId(nullptr);
  ASSERT_EQ(ResolveTo(id.get(), address, 1), 0);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
  sockaddr_in local;
  memcpy(&local, rdma_get_local_addr(id.get()), sizeof local);
  EXPECT_EQ(local.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(id->route.addr.addr.ibaddr.pkey, 0xffff);  // cma_bind_loopback
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), ENODEV);
}

TEST_F(Bind, AWildcardDestinationHasADeviceAndNoRoute) {
  if (IsIwarp()) GTEST_SKIP() << kLoopbackHasARoute;
  ExpectADeviceAndNoRoute("0.0.0.0");
}

TEST_F(Loopback, ADestinationHasADeviceAndNoRoute) {
  if (IsIwarp()) GTEST_SKIP() << kLoopbackHasARoute;
  ExpectADeviceAndNoRoute(loopback);
}

TEST_F(Loopback, BindingToOneChoosesNoDevice) {
  const CmId id = Id();
  ASSERT_EQ(BindTo(id.get(), loopback, 0), 0);
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_NE(PortOf(id.get()), 0);
  sockaddr_in local;
  memcpy(&local, rdma_get_local_addr(id.get()), sizeof local);
  EXPECT_EQ(local.sin_addr.s_addr, SocketAddress(loopback, 0).sin_addr.s_addr);
}

TEST_F(Loopback, ExcludesAllOthersFromItsPort) {
  const uint16_t port = UnusedPort();
  const CmId id = Id(), wildcard = Id(), other = Id();
  ASSERT_EQ(BindTo(id.get(), loopback, port), 0);
  EXPECT_EQ(BindTo(wildcard.get(), "0.0.0.0", port), EADDRNOTAVAIL);
  EXPECT_EQ(BindTo(other.get(), here, port), EADDRNOTAVAIL);
}

TEST_F(Loopback, AListenerOnOneIsReachedByTheDevicesAddress) {
  const CmId listener = NewId(passive_channel.get());
  ASSERT_EQ(BindTo(listener.get(), loopback, 0), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  const CmId active = Requesting(listener.get());
  const CmId passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  sockaddr_in local;
  memcpy(&local, rdma_get_local_addr(passive.get()), sizeof local);
  EXPECT_EQ(local.sin_addr.s_addr, SocketAddress(here, 0).sin_addr.s_addr);
}

TEST_F(Bind, Ipv6HasALoopbackAddressToo) {
  if (IsIwarp()) GTEST_SKIP() << kLoopbackHasARoute;
  const CmId bound = Id(), id = NewId(nullptr);
  EXPECT_EQ(BindTo6(bound.get(), "::1", 0), 0);
  EXPECT_EQ(bound->verbs, nullptr);
  sockaddr_in6 to = Ipv6("::1", 1);
  ASSERT_EQ(ErrnoOf(rdma_resolve_addr(id.get(), nullptr, Cast(to), 100)), 0);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), ENODEV);
}

// ---- link-local addresses

class LinkLocal : public Bind {
 protected:
  void SetUp() override {
    const CmId probe = Id();
    ASSERT_EQ(BindTo(probe.get(), here), 0);
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(probe->verbs, 1, 0, &gid), 0);
    if (gid.raw[0] != 0xfe || gid.raw[1] != 0x80) GTEST_SKIP() << "GID 0 is not link-local";
    char text[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    address = text;
    scope = 1;
    // The link under the device, if there is one.
    const std::string path = "/sys/class/infiniband/" + DeviceName() + "/ports/1/gid_attrs/ndevs/0";
    if (FILE* file = fopen(path.c_str(), "r")) {
      char name[64] = {};
      if (fscanf(file, "%63s", name) == 1) scope = if_nametoindex(name);
      fclose(file);
    }
  }
  std::string address;
  uint32_t scope = 0;
};

TEST_F(LinkLocal, BindsWithItsScopeAlone) {
  const CmId without = Id(), with = Id();
  EXPECT_EQ(BindTo6(without.get(), address, 0), EINVAL);
  ASSERT_EQ(BindTo6(with.get(), address, 0, scope), 0);
  EXPECT_NE(with->verbs, nullptr);
  sockaddr_in6 local;
  memcpy(&local, rdma_get_local_addr(with.get()), sizeof local);
  EXPECT_EQ(local.sin6_scope_id, scope);
}

// cma_check_linklocal, and dev_get_by_index in rdma_translate_ip.
TEST_F(LinkLocal, AnInterfaceThatDoesNotExistIsRefused) {
  constexpr uint32_t kNoInterface = 0x7fffffff;
  const CmId bound = Id(), resolving = Id();
  EXPECT_EQ(BindTo6(bound.get(), address, 0, kNoInterface), ENODEV);
  sockaddr_in6 to = Ipv6("fe80::1:2:3:4", 1, kNoInterface);
  EXPECT_EQ(rdma_resolve_addr(resolving.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 1000),
            -1);
  EXPECT_EQ(errno, ENETUNREACH);
}

// cma_iboe_join_multicast looks at the family of the group alone.
TEST_F(LinkLocal, AnIdJoinsAnIpv4Group) {
  const CmId id = Id(RDMA_PS_UDP);
  ASSERT_EQ(BindTo6(id.get(), address, 0, scope), 0);
  sockaddr_in group{};
  group.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, "239.11.22.33", &group.sin_addr), 1);
  ASSERT_EQ(ErrnoOf(rdma_join_multicast(id.get(), Cast(group), nullptr)), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(event->status, 0);
  rdma_ack_cm_event(event);
  EXPECT_EQ(ErrnoOf(rdma_leave_multicast(id.get(), Cast(group))), 0);
}

TEST_F(LinkLocal, ConnectsAndItsQpsUseTheFirstGid) {
  const CmId listener = NewId(passive_channel.get());
  ASSERT_EQ(BindTo6(listener.get(), address, 0, scope), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  const CmId active = NewId(channel.get());
  sockaddr_in6 to = Ipv6(address, PortOf(listener.get()), scope);
  ASSERT_EQ(ErrnoOf(rdma_resolve_addr(active.get(), nullptr, Cast(to), 2000)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(ErrnoOf(rdma_resolve_route(active.get(), 2000)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_connect(active.get(), nullptr)), 0);
  const CmId passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(rdma_get_local_addr(passive.get())->sa_family, AF_INET6);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  for (const CmId* id : {&active, &passive}) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp((*id)->qp, &attr, IBV_QP_AV, &init), 0);
    EXPECT_EQ(attr.ah_attr.grh.sgid_index, 0);
  }
}

// ---- the backlog

class Backlog : public ConnectionTest {
 protected:
  void Ask() {
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Resolve(&id));
    ASSERT_GE(active.CreateCmQp(id), 0);
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
  int Requests() {
    int count = 0;
    for (EventCopy event = passive.NextEvent(kQuiet_ms); event.found;
         event = passive.NextEvent(kQuiet_ms)) {
      count += event.event == RDMA_CM_EVENT_CONNECT_REQUEST ? 1 : 0;
    }
    return count;
  }
};

TEST_F(Backlog, NegativeAndHugeOnesAreTheGreatest) {
  for (const int backlog : {-1, 1 << 20}) {
    ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, backlog));
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Ask());
    EXPECT_EQ(Requests(), 3);
    ASSERT_EQ(passive.DestroyId(listener), 0);
    for (int i = 0; i < 3; ++i) active.NextEvent(kQuiet_ms);
  }
}

TEST_F(Backlog, OverflowingRequestsHearNothingAndOthersAreServed) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 1));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Ask());
  ExpectQuiet(active);
  EXPECT_EQ(Requests(), 1);
  ASSERT_NO_FATAL_FAILURE(Ask());
  EXPECT_EQ(Requests(), 1);
}

TEST_F(Backlog, IsOfDatagramsToo) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP, 1));
  for (int i = 0; i < 2; ++i) {
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Resolve(&id, RDMA_PS_UDP));
    ASSERT_GE(active.CreateCmQp(id), 0);
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
  // A UD request without room in the backlog is rejected at once, unlike a connection request.
  ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, 2);
  EXPECT_EQ(Requests(), 1);
}

}  // namespace
}  // namespace rdma_contract
