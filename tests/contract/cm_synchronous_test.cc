// Ids without a channel. Each call waits for the event that ends it, keeps the event in id->event,
// and returns the event's error (rdma_create_id(3), rdma_cm(7)). Also endpoints
// (rdma_create_ep(3)).
#include <cerrno>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Synchronous : public ConnectedTest {
 protected:
  void SetUp() override {
    listener = Listener(nullptr);
    port = PortOf(listener.get());
  }
  CmId Routed(rdma_port_space space = RDMA_PS_TCP, uint16_t to_port = 0) {
    CmId id = NewId(nullptr, space);
    EXPECT_EQ(ResolveTo(id.get(), here, to_port != 0 ? to_port : port), 0);
    EXPECT_EQ(rdma_resolve_route(id.get(), 2000), 0) << strerror(errno);
    return id;
  }
  static int Connect(rdma_cm_id* id) { return ErrnoOf(rdma_connect(id, nullptr)); }
  CmId TakeRequest() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(ErrnoOf(rdma_get_request(listener.get(), &id)), 0);
    return CmId(id);
  }
  // Creates an established connection of two synchronous ids.
  void Join() {
    active = Routed();
    ASSERT_EQ(MakeQueues(active.get()), 0);
    std::future<int> connected = std::async(std::launch::async, Connect, active.get());
    passive = TakeRequest();
    ASSERT_EQ(MakeQueues(passive.get()), 0);
    ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
    ASSERT_EQ(connected.get(), 0);
  }
  static rdma_cm_event_type LastOf(const CmId& id) {
    EXPECT_NE(id->event, nullptr);
    return id->event != nullptr ? id->event->event : RDMA_CM_EVENT_ADDR_ERROR;
  }
  uint16_t port = 0;
};

TEST_F(Synchronous, EachCallLeavesItsEventUntilTheNext) {
  const CmId id = NewId(nullptr);
  EXPECT_EQ(id->event, nullptr);
  ASSERT_EQ(ResolveTo(id.get(), here, port), 0);
  EXPECT_EQ(LastOf(id), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  EXPECT_EQ(LastOf(id), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST_F(Synchronous, ACallThatFailsAtOnceLeavesTheEventBefore) {
  const CmId id = NewId(nullptr);
  ASSERT_EQ(ResolveTo(id.get(), here, port), 0);
  EXPECT_EQ(ResolveTo(id.get(), here, port), EINVAL);
  EXPECT_EQ(LastOf(id), RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(Synchronous, BothSidesEndWithEstablished) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(Join());
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active->event->param.conn.private_data_len, 196);
  EXPECT_EQ(LastOf(passive), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_RTS);
  EXPECT_EQ(StateOf(passive->qp), IBV_QPS_RTS);
}

TEST_F(Synchronous, ConnectWaitsForTheAnswer) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  active = Routed();
  ASSERT_EQ(MakeQueues(active.get()), 0);
  std::future<int> connected = std::async(std::launch::async, Connect, active.get());
  passive = TakeRequest();
  EXPECT_TRUE(StillWaits(connected));
  ASSERT_EQ(rdma_reject(passive.get(), "later", 5), 0);
  EXPECT_EQ(connected.get(), ECONNREFUSED);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(active->event->status, 28);
  EXPECT_EQ(memcmp(active->event->param.conn.private_data, "later", 5), 0);
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_ERR);
}

TEST_F(Synchronous, WithoutAQpConnectEndsWithTheResponse) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  active = Routed();
  rdma_conn_param param = ParametersWith("");
  param.qp_num = ForeignQpn();
  std::future<int> connected =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_connect(active.get(), &param)); });
  passive = TakeRequest();
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  std::future<int> accepted =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_accept(passive.get(), nullptr)); });
  EXPECT_EQ(connected.get(), 0);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_TRUE(StillWaits(accepted));
  EXPECT_EQ(ErrnoOf(rdma_establish(active.get())), 0);
  EXPECT_EQ(accepted.get(), 0);
  EXPECT_EQ(LastOf(passive), RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(Synchronous, DisconnectWaitsForThePeersDisconnect) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Join());
  std::future<int> first =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_disconnect(active.get())); });
  EXPECT_TRUE(StillWaits(first));
  EXPECT_EQ(ErrnoOf(rdma_disconnect(passive.get())), 0);
  EXPECT_EQ(LastOf(passive), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(first.get(), 0);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Synchronous, AResolutionThatEndsInAnErrorAnswersIt) {
  const CmId id = NewId(nullptr);
  EXPECT_EQ(ResolveTo(id.get(), "203.0.113.1", 1), ENETUNREACH);
  EXPECT_EQ(id->event, nullptr);
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_EQ(ResolveTo(id.get(), here, port), 0);  // a second try succeeds
}

// ---- datagrams

TEST_F(Synchronous, DatagramsResolveEachOther) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  listener = Listener(nullptr, RDMA_PS_UDP);
  active = Routed(RDMA_PS_UDP, PortOf(listener.get()));
  ASSERT_EQ(MakeQueues(active.get()), 0);
  std::future<int> connected = std::async(std::launch::async, Connect, active.get());
  passive = TakeRequest();
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  ASSERT_EQ(connected.get(), 0);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active->event->param.ud.qp_num, passive->qp->qp_num);
  EXPECT_EQ(active->event->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
}

TEST_F(Synchronous, ADatagramNobodyListensForFailsWithTheRepliesStatus) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  active = Routed(RDMA_PS_UDP, 9);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  EXPECT_EQ(Connect(active.get()), 1);  // the SIDR status instead of an errno
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(active->event->status, 1);
}

TEST_F(Synchronous, AJoinEndsWithItsEvent) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  const CmId id = NewId(nullptr, RDMA_PS_UDP);
  ASSERT_EQ(BindTo(id.get(), here), 0);
  ASSERT_EQ(MakeQueues(id.get()), 0);
  sockaddr_in group = SocketAddress("239.77.1.1", 0);
  ASSERT_EQ(ErrnoOf(rdma_join_multicast(id.get(), Cast(group), this)), 0);
  EXPECT_EQ(LastOf(id), RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(id->event->param.ud.private_data, this);
  EXPECT_EQ(id->event->param.ud.qp_num, 0xffffffu);
  // rdma_leave_multicast waits for the join's event, so a program must acknowledge the event first.
  EXPECT_EQ(ErrnoOf(rdma_ack_cm_event(id->event)), 0);
  id->event = nullptr;
  EXPECT_EQ(ErrnoOf(rdma_leave_multicast(id.get(), Cast(group))), 0);
}

// ---- endpoints

class Endpoint : public Synchronous {
 protected:
  AddrInfo InfoTo(uint16_t to_port) {
    rdma_addrinfo hints{}, *info = nullptr;
    hints.ai_port_space = RDMA_PS_TCP;
    EXPECT_EQ(rdma_getaddrinfo(here.c_str(), std::to_string(to_port).c_str(), &hints, &info), 0);
    return AddrInfo(info);
  }
  static int Create(CmId* id, rdma_addrinfo* info, ibv_qp_init_attr* init = nullptr,
                    ibv_pd* pd = nullptr) {
    rdma_cm_id* made = nullptr;
    const int error = ErrnoOf(rdma_create_ep(&made, info, pd, init));
    id->reset(made);
    return error;
  }
};

TEST_F(Endpoint, AnActiveOneIsResolvedAndHasItsQp) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  const AddrInfo info = InfoTo(port);
  ibv_qp_init_attr init = SmallQueues();
  init.qp_type = IBV_QPT_UD;  // the address information has priority
  ASSERT_EQ(Create(&active, info.get(), &init), 0);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active->route.num_paths, 1);
  ASSERT_NE(active->qp, nullptr);
  EXPECT_EQ(active->qp->qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_NE(active->send_cq, nullptr);
  EXPECT_NE(active->recv_cq_channel, nullptr);
  EXPECT_EQ(ntohs(rdma_get_dst_port(active.get())), port);
}

TEST_F(Endpoint, WithoutAttributesItHasNoQp) {
  const AddrInfo info = InfoTo(port);
  ASSERT_EQ(Create(&active, info.get()), 0);
  EXPECT_EQ(active->qp, nullptr);
  EXPECT_EQ(active->send_cq, nullptr);
}

TEST_F(Endpoint, ASourceInTheInformationIsBoundTo) {
  const AddrInfo info = InfoTo(port);
  sockaddr_in source = SocketAddress(here, 0);
  info->ai_src_addr = static_cast<sockaddr*>(malloc(sizeof source));
  memcpy(info->ai_src_addr, &source, sizeof source);
  info->ai_src_len = sizeof source;
  ASSERT_EQ(Create(&active, info.get()), 0);
  sockaddr_in local;
  memcpy(&local, rdma_get_local_addr(active.get()), sizeof local);
  EXPECT_EQ(local.sin_addr.s_addr, source.sin_addr.s_addr);
  EXPECT_NE(local.sin_port, 0);
}

TEST_F(Endpoint, WhatCannotBeReachedMakesNone) {
  const AddrInfo info = InfoTo(port);
  sockaddr_in far = SocketAddress("203.0.113.1", 1);
  memcpy(info->ai_dst_addr, &far, sizeof far);
  EXPECT_EQ(Create(&active, info.get()), ENETUNREACH);
}

TEST_F(Endpoint, APassiveOneIsBoundOnly) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_getaddrinfo(here.c_str(), nullptr, &hints, &found), 0);
  const AddrInfo info(found);
  CmId endpoint;
  ASSERT_EQ(Create(&endpoint, info.get()), 0);
  EXPECT_NE(PortOf(endpoint.get()), 0);
  EXPECT_NE(endpoint->verbs, nullptr);
  EXPECT_EQ(endpoint->event, nullptr);
  EXPECT_EQ(ErrnoOf(rdma_listen(endpoint.get(), 1)), 0);
}

TEST_F(Endpoint, APassiveOneOnAPortInUseIsRefused) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_getaddrinfo(here.c_str(), std::to_string(port).c_str(), &hints, &found), 0);
  const AddrInfo info(found);
  CmId endpoint;
  EXPECT_EQ(Create(&endpoint, info.get()), EADDRINUSE);
}

TEST_F(Endpoint, ConnectionDataOfTheInformationComesBeforeTheCallers) {
  const AddrInfo info = InfoTo(port);
  info->ai_connect = malloc(4);
  memcpy(info->ai_connect, "head", 4);
  info->ai_connect_len = 4;
  ibv_qp_init_attr init = SmallQueues();
  ASSERT_EQ(Create(&active, info.get(), &init), 0);
  rdma_conn_param param = ParametersWith("tail");
  std::future<int> connected =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_connect(active.get(), &param)); });
  passive = TakeRequest();
  ASSERT_TRUE(passive);
  EXPECT_STREQ(static_cast<const char*>(passive->event->param.conn.private_data), "headtail");
  ASSERT_EQ(rdma_reject(passive.get(), nullptr, 0), 0);
  EXPECT_EQ(connected.get(), ECONNREFUSED);
}

TEST_F(Endpoint, ARouteInTheInformationIsTaken) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  // The path of a resolved id in the form of a subnet manager.
  const CmId resolved = Routed();
  const ibv_sa_path_rec& path = resolved->route.path_rec[0];
  ibv_path_data data{};
  data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  data.path.dgid = path.dgid;
  data.path.sgid = path.sgid;
  data.path.flowlabel_hoplimit = htonl(64);
  data.path.tclass = 0x20;
  data.path.reversible_numpath = 0x81;
  data.path.pkey = 0xffff;
  data.path.mtu = static_cast<uint8_t>(2 << 6 | path.mtu);
  data.path.rate = 2 << 6;
  data.path.packetlifetime = 2 << 6 | 14;
  const AddrInfo info = InfoTo(port);
  info->ai_route = malloc(sizeof data);
  memcpy(info->ai_route, &data, sizeof data);
  info->ai_route_len = sizeof data;
  ASSERT_EQ(Create(&active, info.get()), 0);
  EXPECT_EQ(LastOf(active), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(active->route.num_paths, 1);
  EXPECT_EQ(active->route.path_rec[0].traffic_class, 0x20);
  EXPECT_EQ(active->route.path_rec[0].packet_life_time, 14);
}

TEST_F(Endpoint, DestroyingItDestroysItsQpAndItsSrq) {
  const AddrInfo info = InfoTo(port);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, info.get(), nullptr, nullptr), 0);
  ibv_srq_init_attr srq{};
  srq.attr = {4, 1, 0};
  ASSERT_EQ(ErrnoOf(rdma_create_srq(id, id->pd, &srq)), 0);
  ASSERT_NE(id->srq, nullptr);
  ASSERT_EQ(MakeQueues(id), 0);
  EXPECT_EQ(id->qp->srq, id->srq);
  rdma_destroy_ep(id);
}

}  // namespace
}  // namespace rdma_contract
