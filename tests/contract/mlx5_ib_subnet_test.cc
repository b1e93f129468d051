// The profile mlx5-ib: ids with a sockaddr_ib (AF_IB), the subnet administrator's answers to path
// queries, and partitions. The comments name the functions of the kernel's cma.c that say the same.
#include <algorithm>
#include <cerrno>
#include <string>

#include "tests/contract/support/af_ib.h"
#include "tests/contract/support/multicast.h"
#include "tests/contract/support/objects.h"
#include "tests/contract/support/outside.h"

namespace rdma_contract {
namespace {

constexpr size_t kRequestBytes = 92;    // IB_CM_REQ_PRIVATE_DATA_SIZE
constexpr size_t kDatagramBytes = 216;  // IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE
constexpr size_t kIpHeaderBytes = 36;   // struct cma_hdr
constexpr uint16_t kPartition = 0x8005;

class Subnet : public AfIb {
 protected:
  const ibv_gid gid = FirstGid();

  static sockaddr_ib PeerOf(const CmId& id) {
    sockaddr_ib address;
    memcpy(&address, rdma_get_peer_addr(id.get()), sizeof address);
    return address;
  }
  template <class Gid>
  static bool Same(const Gid& gid, const ibv_gid& wanted) {
    return memcmp(&gid, wanted.raw, sizeof wanted.raw) == 0;
  }
  CmId GidListener(rdma_port_space space, const ibv_gid& at, uint16_t pkey = 0xffff) {
    CmId id = NewId(passive_channel.get(), space);
    EXPECT_EQ(Bind(id, Address(at, space, 0, pkey)), 0);
    EXPECT_EQ(ErrnoOf(rdma_listen(id.get(), 4)), 0);
    return id;
  }
  // Returns an id whose address is resolved to the listener's.
  CmId ResolvedTo(const CmId& at, uint16_t pkey = 0xffff) {
    CmId id = NewId(channel.get(), at->ps);
    sockaddr_ib to = LocalOf(at);
    memcpy(&to.sib_addr, gid.raw, sizeof gid.raw);
    to.sib_pkey = htons(pkey);
    EXPECT_EQ(Resolve(id, to), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    return id;
  }
  void Route(const CmId& id) {
    ASSERT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  CmId RoutedTo(const CmId& at, uint16_t pkey = 0xffff) {
    CmId id = ResolvedTo(at, pkey);
    Route(id);
    return id;
  }
  static int Connect(const CmId& id, const std::string& data) {
    rdma_conn_param param = ParametersWith(data);
    return ErrnoOf(rdma_connect(id.get(), &param));
  }
  void ExpectNoRoute(const CmId& id, int status) {
    ASSERT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 1)), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ROUTE_ERROR, status);
  }
  // Accepts the next request with queues of its own.
  void Accept() {
    passive = NextRequest(passive_channel.get());
    ASSERT_TRUE(passive);
    ASSERT_EQ(MakeQueues(passive.get()), 0);
    ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
    Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  }
  void ExpectMessageArrives() {
    char sent[] = "over InfiniBand", taken[sizeof sent] = {};
    ibv_mr* const from = rdma_reg_msgs(active.get(), sent, sizeof sent);
    ibv_mr* const to = rdma_reg_msgs(passive.get(), taken, sizeof taken);
    ASSERT_TRUE(from != nullptr && to != nullptr);
    ASSERT_EQ(rdma_post_recv(passive.get(), nullptr, taken, sizeof taken, to), 0);
    ASSERT_EQ(rdma_post_send(active.get(), nullptr, sent, sizeof sent, from, 0), 0);
    ibv_wc wc{};
    EXPECT_EQ(rdma_get_recv_comp(passive.get(), &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_STREQ(taken, sent);
    EXPECT_EQ(rdma_get_send_comp(active.get(), &wc), 1);
    rdma_dereg_mr(from);
    rdma_dereg_mr(to);
  }
};

// ---- addresses

TEST_F(Subnet, AGidOfThePortBindsToItsDevice) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Bind(id, Address(gid, RDMA_PS_TCP, 0)), 0);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
  EXPECT_TRUE(Same(LocalOf(id).sib_addr, gid));
  EXPECT_NE(PortOf(id.get()), 0);
  EXPECT_TRUE(Same(id->route.addr.addr.ibaddr.sgid, gid));
  EXPECT_EQ(id->route.addr.addr.ibaddr.pkey, htons(0xffff));
}

TEST_F(Subnet, AnotherPortsGidDoesNotBind) {
  ibv_gid other = gid;
  other.raw[15] ^= 0x55;
  const CmId id = NewId(channel.get());
  EXPECT_EQ(Bind(id, Address(other, RDMA_PS_TCP, 0)), ENODEV);
  EXPECT_EQ(Bind(id, Address(gid, RDMA_PS_TCP, 0)), 0);
}

// ---- paths

TEST_F(Subnet, APathHasGidsLidsAndPartition) {
  listener = GidListener(RDMA_PS_TCP, gid);
  active = RoutedTo(listener);
  ASSERT_EQ(active->route.num_paths, 1);
  const ibv_sa_path_rec& path = active->route.path_rec[0];
  EXPECT_TRUE(Same(path.sgid, gid));
  EXPECT_TRUE(Same(path.dgid, gid));
  EXPECT_EQ(path.slid, path.dlid);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(active->verbs, 1, &port), 0);
  EXPECT_EQ(ntohs(path.dlid), port.lid);
  EXPECT_EQ(ntohs(path.pkey), 0xffff);
  EXPECT_EQ(path.flow_label, 0u);
  EXPECT_LE(path.hop_limit, 1);
  EXPECT_EQ(rdma_get_dst_port(active.get()), rdma_get_src_port(listener.get()));
}

TEST_F(Subnet, TheLoopbackAddressLeadsBackToThePort) {
  // cma_bind_loopback: both GIDs are entry 0 of the port's table.
  ibv_gid loopback{};
  loopback.raw[15] = 1;
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Resolve(id, Address(loopback, RDMA_PS_TCP, 1)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  Route(id);
  ASSERT_EQ(id->route.num_paths, 1);
  EXPECT_TRUE(Same(id->route.path_rec[0].sgid, gid));
  EXPECT_TRUE(Same(id->route.path_rec[0].dgid, gid));
}

TEST_F(Subnet, AnUnknownGidIsRefusedAndTheIdMayAskAgain) {
  // recv_handler of sa_query.c: the administrator's refusal is -EINVAL.
  ibv_gid unknown{};
  unknown.raw[0] = 0xfe, unknown.raw[1] = 0x80, unknown.raw[15] = 9;
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Resolve(id, Address(unknown, RDMA_PS_TCP, 1)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ExpectNoRoute(id, -EINVAL);
  ExpectNoRoute(id, -EINVAL);
}

TEST_F(Subnet, WithoutAnAnswerTheRouteTimesOut) {
  // send_handler of sa_query.c.
  const std::string silent = UnresolvedAddress();
  if (silent.empty()) GTEST_SKIP() << "no silent network";
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Resolve(id, Address(GidOf(silent), RDMA_PS_TCP, 1)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ExpectNoRoute(id, -ETIMEDOUT);
}

TEST_F(Subnet, AWaitingIdDoesNothingElseAndCanBeDestroyed) {
  const std::string silent = UnresolvedAddress();
  if (silent.empty()) GTEST_SKIP() << "no silent network";
  CmId id = NewId(channel.get());
  ASSERT_EQ(Resolve(id, Address(GidOf(silent), RDMA_PS_TCP, 1)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 60000)), 0);
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 60000)), EINVAL);
  EXPECT_EQ(Connect(id, ""), EINVAL);
  id.reset();
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Subnet, AnIpIdAsksTheAdministratorToo) {
  listener = Listener(passive_channel.get());
  TestDevice device;
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, PortOf(listener.get())), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  device.SetPort(false);
  ExpectNoRoute(id, -ETIMEDOUT);
  device.SetPort(true);
  Route(id);
}

// ---- connections

class SubnetConnection : public Subnet, public testing::WithParamInterface<rdma_port_space> {};
INSTANTIATE_TEST_SUITE_P(PortSpaces, SubnetConnection, testing::Values(RDMA_PS_TCP, RDMA_PS_IB),
                         [](const auto& space) {
                           return std::string(space.param == RDMA_PS_IB ? "Ib" : "Tcp");
                         });

TEST_P(SubnetConnection, ItsRequestHasNoIpHeader) {
  // cma_user_data_offset is 0, so that all 92 bytes are the user's. cma_format_hdr then writes its
  // version over the first one.
  listener = GidListener(GetParam(), gid);
  active = RoutedTo(listener);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  EXPECT_EQ(Connect(active, std::string(kRequestBytes + 1, '\x11')), EINVAL);
  ASSERT_EQ(Connect(active, std::string(kRequestBytes, '\x11')), 0);
  CmEvent request = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  passive.reset(request->id);
  ASSERT_EQ(request->param.conn.private_data_len, kRequestBytes);
  std::string expected(kRequestBytes, '\x11');
  expected[0] = 0;
  EXPECT_EQ(memcmp(request->param.conn.private_data, expected.data(), kRequestBytes), 0);
  request.reset();
  EXPECT_TRUE(Same(LocalOf(passive).sib_addr, gid));
  EXPECT_TRUE(Same(PeerOf(passive).sib_addr, gid));
  EXPECT_EQ(LocalOf(passive).sib_sid, LocalOf(listener).sib_sid);
  EXPECT_EQ(PeerOf(passive).sib_pkey, htons(0xffff));
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ExpectMessageArrives();
}

TEST_F(Subnet, AWildcardListenerTakesRequestsForEachGid) {
  listener = GidListener(RDMA_PS_TCP, {});
  active = RoutedTo(listener);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(Connect(active, ""), 0);
  Accept();
  EXPECT_TRUE(Same(LocalOf(passive).sib_addr, gid));
}

TEST_F(Subnet, DataThatLooksLikeAnIpHeaderIsTakenForOne) {
  // cma_ib_id_from_event: the second byte decides. No device has the address that follows.
  listener = GidListener(RDMA_PS_TCP, gid);
  active = RoutedTo(listener);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(Connect(active, std::string(kRequestBytes, '\x45')), 0);
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(Subnet, AnIpListenerRefusesAnIdWithAGid) {
  // cma_match_net_dev.
  listener = Listener(passive_channel.get());
  active = NewId(channel.get());
  ASSERT_EQ(Resolve(active, Address(gid, RDMA_PS_TCP, PortOf(listener.get()))), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  Route(active);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(Connect(active, ""), 0);
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(Subnet, AListenerOnAGidTakesAnIpIdAndSeesItsHeader) {
  // cma_match_private_data.
  listener = GidListener(RDMA_PS_TCP, gid);
  active = Requesting(listener.get(), "hello");
  const CmEvent request = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  passive.reset(request->id);
  ASSERT_EQ(request->param.conn.private_data_len, kRequestBytes);
  const auto* const data = static_cast<const char*>(request->param.conn.private_data);
  EXPECT_EQ(data[1] >> 4, 4);
  EXPECT_STREQ(data + kIpHeaderBytes, "hello");
}

TEST_F(Subnet, ADatagramIdNeedsAListenerOnAGid) {
  // A SIDR_REQ has no GIDs, so that a wildcard listener finds no device (cma_ib_acquire_dev).
  listener = GidListener(RDMA_PS_UDP, {});
  active = RoutedTo(listener);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(Connect(active, ""), 0);
  Expect(channel.get(), RDMA_CM_EVENT_UNREACHABLE, 2);
  listener.reset();

  listener = GidListener(RDMA_PS_UDP, gid);
  active = RoutedTo(listener);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  EXPECT_EQ(Connect(active, std::string(kDatagramBytes + 1, '\x11')), EINVAL);
  ASSERT_EQ(Connect(active, std::string(kDatagramBytes, '\x11')), 0);
  const CmEvent request = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  passive.reset(request->id);
  EXPECT_EQ(request->param.ud.private_data_len, kDatagramBytes);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  rdma_conn_param accepted{};
  accepted.qp_num = passive->qp->qp_num;
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), &accepted)), 0);
  const CmEvent established = Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(established);
  EXPECT_EQ(established->param.ud.ah_attr.is_global, 0);
  EXPECT_NE(established->param.ud.ah_attr.dlid, 0);
}

// ---- partitions

class Partition : public Subnet {
 protected:
  ~Partition() override {
    TestDevice::SetPkey(1, 0);
    TestDevice::SetPkey(0, 0xffff);
  }
  static uint16_t PkeyIndexOf(const CmId& id) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_PKEY_INDEX, &init), 0);
    return attr.pkey_index;
  }
};

TEST_F(Partition, AConnectionUsesTheEntryOfItsPartition) {
  TestDevice::SetPkey(1, kPartition);
  listener = GidListener(RDMA_PS_TCP, gid, kPartition);
  active = RoutedTo(listener, kPartition);
  EXPECT_EQ(ntohs(active->route.path_rec[0].pkey), kPartition);
  TestDevice::SetPkey(0, 0x8006);  // so that no message can be of the default partition
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(Connect(active, ""), 0);
  Accept();
  EXPECT_EQ(PeerOf(passive).sib_pkey, htons(kPartition));
  EXPECT_EQ(PkeyIndexOf(active), 1);
  EXPECT_EQ(PkeyIndexOf(passive), 1);
  ExpectMessageArrives();
}

TEST_F(Partition, ADestinationInAPartitionThatThePortLacksHasNoDevice) {
  // cma_resolve_ib_dev.
  const CmId id = NewId(channel.get());
  EXPECT_EQ(Resolve(id, Address(gid, RDMA_PS_TCP, 1, kPartition)), ENODEV);
}

TEST_F(Partition, AnIdBoundInAPartitionThatThePortLacksHasNoPath) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Bind(id, Address(gid, RDMA_PS_TCP, 0, kPartition)), 0);
  EXPECT_EQ(MakeQueues(id.get()), ENOENT);  // cma_ib_init_qp_attr
  ASSERT_EQ(Resolve(id, Address(gid, RDMA_PS_TCP, 1)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ExpectNoRoute(id, -EINVAL);
}

TEST_F(Partition, APathOfAPartitionThatThePortHasLostDoesNotConnect) {
  // cm_init_av_by_path.
  TestDevice::SetPkey(1, kPartition);
  listener = GidListener(RDMA_PS_TCP, gid, kPartition);
  active = RoutedTo(listener, kPartition);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  TestDevice::SetPkey(1, 0);
  EXPECT_EQ(Connect(active, ""), ENOENT);
}

// ---- multicast and IPoIB's port space

constexpr uint32_t kIpoibQkey = 0x0b1b;  // OpenSM's default

ibv_gid GidAt(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1);
  return gid;
}

class SubnetGroups : public Partition {
 protected:
  CmId Bound(rdma_port_space space) {
    CmId id = NewId(channel.get(), space);
    EXPECT_EQ(BindTo(id.get(), here), 0);
    return id;
  }
  static int Ask(const CmId& id, const std::string& group) {
    sockaddr_storage address = SockaddrOf(group.c_str());
    return ErrnoOf(rdma_join_multicast(id.get(), reinterpret_cast<sockaddr*>(&address), nullptr));
  }
  // Returns the event's parameters, which have no pointers.
  rdma_ud_param Join(const CmId& id, const std::string& group) {
    EXPECT_EQ(Ask(id, group), 0);
    const CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN);
    return event ? event->param.ud : rdma_ud_param{};
  }
};

TEST_F(SubnetGroups, AGroupsMgidHasItsPortSpacesSignature) {
  // cma_set_mgid.
  const struct {
    rdma_port_space space;
    const char *group, *mgid;
    uint32_t qkey;
  } rows[] = {
      {RDMA_PS_UDP, "239.1.2.3", "ff12:4001:ffff::f01:203", kQkey},
      {RDMA_PS_IPOIB, "239.1.2.3", "ff12:401b:ffff::f01:203", kIpoibQkey},
      {RDMA_PS_UDP, "ff02::1:2:3", "ff12:6001:ffff::1:2:3", kQkey},
      {RDMA_PS_IPOIB, "ff02::1:2:3", "ff12:601b:ffff::1:2:3", kIpoibQkey},
      {RDMA_PS_UDP, "ff12:a01b:ffff::7", "ff12:a01b:ffff::7", kQkey},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.mgid);
    const CmId id = Bound(row.space);
    const rdma_ud_param ud = Join(id, row.group);
    EXPECT_TRUE(Same(ud.ah_attr.grh.dgid, GidAt(row.mgid)));
    EXPECT_EQ(ud.ah_attr.is_global, 1);
    EXPECT_GE(ud.ah_attr.dlid, 0xc000);
    EXPECT_LT(ud.ah_attr.dlid, 0xffff);
    EXPECT_EQ(ud.ah_attr.sl, 0);
    EXPECT_EQ(ud.ah_attr.grh.sgid_index, 0);
    EXPECT_EQ(ud.qp_num, kMulticastQpn);
    EXPECT_EQ(ud.qkey, row.qkey);
  }
}

TEST_F(SubnetGroups, TheZeroAddressGetsAGroupOfTheAdministrators) {
  const CmId first = Bound(RDMA_PS_UDP), second = Bound(RDMA_PS_UDP);
  const ibv_gid one = Join(first, "0.0.0.0").ah_attr.grh.dgid;
  const ibv_gid other = Join(second, "::").ah_attr.grh.dgid;
  EXPECT_EQ(memcmp(one.raw, GidAt("ff12:a01b:ffff::").raw, 6), 0);
  EXPECT_FALSE(Same(one, other));
}

class SubnetGroup : public SubnetGroups, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, SubnetGroup, testing::Values("239.7.7.9", "ff02::7:7:9"),
                         [](const auto& group) {
                           return std::string(group.index == 0 ? "Ipv4" : "Ipv6");
                         });

TEST_P(SubnetGroup, CarriesDatagramsToItsMembers) {
  active = Bound(RDMA_PS_UDP);  // rdma_post_ud_send has its Q_Key
  passive = Bound(RDMA_PS_UDP);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  Join(passive, GetParam());
  rdma_ud_param ud = Join(active, GetParam());
  char sent[] = "to all", taken[kRouteBytes + sizeof sent] = {};
  ibv_mr* const from = rdma_reg_msgs(active.get(), sent, sizeof sent);
  ibv_mr* const to = rdma_reg_msgs(passive.get(), taken, sizeof taken);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  const Ah ah(ibv_create_ah(active->pd, &ud.ah_attr));
  ASSERT_TRUE(ah);
  ASSERT_EQ(rdma_post_recv(passive.get(), nullptr, taken, sizeof taken, to), 0);
  ASSERT_EQ(
      rdma_post_ud_send(active.get(), nullptr, sent, sizeof sent, from, 0, ah.get(), ud.qp_num), 0);
  ibv_wc wc{};
  EXPECT_EQ(rdma_get_send_comp(active.get(), &wc), 1);
  EXPECT_EQ(rdma_get_recv_comp(passive.get(), &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, sizeof taken);
  EXPECT_STREQ(taken + kRouteBytes, sent);
  sockaddr_storage group = SockaddrOf(GetParam());
  EXPECT_EQ(rdma_leave_multicast(passive.get(), reinterpret_cast<sockaddr*>(&group)), 0);
  rdma_dereg_mr(from);
  rdma_dereg_mr(to);
}

TEST_F(SubnetGroups, AnIdWithAGidKnowsNoBroadcastGroup) {
  // ib_sa_get_mcmember_rec.
  const CmId id = NewId(channel.get(), RDMA_PS_UDP);
  ASSERT_EQ(Bind(id, Address(gid, RDMA_PS_UDP, 0)), 0);
  EXPECT_EQ(Ask(id, "239.1.2.3"), EADDRNOTAVAIL);
}

TEST_F(SubnetGroups, AGroupInAPartitionThatThePortHasLostIsRefused) {
  const CmId id = Bound(RDMA_PS_UDP);
  TestDevice::SetPkey(0, 0x8006);
  ASSERT_EQ(Ask(id, "239.1.2.3"), 0);
  Expect(channel.get(), RDMA_CM_EVENT_MULTICAST_ERROR, -EINVAL);
  TestDevice::SetPkey(0, 0xffff);
  Join(id, "239.1.2.4");
}

TEST_F(SubnetGroups, DatagramsOfIpoibsPortSpaceHaveTheBroadcastGroupsQkey) {
  // cma_set_default_qkey.
  listener = Listener(passive_channel.get(), RDMA_PS_IPOIB);
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  rdma_conn_param accepted{};
  accepted.qp_num = passive->qp->qp_num;
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), &accepted)), 0);
  const CmEvent established = Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(established);
  EXPECT_EQ(established->param.ud.qkey, kIpoibQkey);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(passive->qp, &attr, IBV_QP_QKEY, &init), 0);
  EXPECT_EQ(attr.qkey, kIpoibQkey);
}

}  // namespace
}  // namespace rdma_contract
