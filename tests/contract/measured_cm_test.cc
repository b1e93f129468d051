// Connection management step by step, as measured on the kernel's rxe. The tests check the result
// of each call in each state, the order of the events, and the state of ids and QPs afterwards.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <memory>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Measured : public ConnectionTest {
 protected:
  // Proceeds to the CONNECT_RESPONSE of an id without a QP.
  void Respond() {
    ASSERT_NO_FATAL_FAILURE(StartListening());
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
    ConnectSpec spec(10, 3);
    spec.qp_num = ForeignQpn();
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_GE(request.id, 0);
    passive_id = request.id;
    spec.qp_num = ForeignQpn();
    ASSERT_EQ(passive.Accept(passive_id, spec), 0);
    ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  void Ask() {
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Resolve(&id));
    ASSERT_GE(active.CreateCmQp(id), 0);
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
};

// ---- at CONNECT_RESPONSE

TEST_F(Measured, ThePassiveSideHearsNothingBeforeTheActiveSideEstablishes) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  ExpectQuiet(passive);
}

TEST_F(Measured, TheActiveSideMayRejectTheResponseWithPrivateData) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(active.Reject(active_id, 2, 9), 0);
  ExpectPrivateData(ExpectEvent(passive, RDMA_CM_EVENT_REJECTED, 28), 148, 2, 9);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  ExpectQuiet(passive);
}

TEST_F(Measured, DisconnectingAtTheResponseDoesNothing) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_EQ(active.Disconnect(active_id), 0);
  ExpectQuiet(passive);
  ASSERT_EQ(active.Establish(active_id), 0);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Measured, DestroyingTheIdAtTheResponseRejectsIt) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(active.DestroyId(active_id), 0);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_REJECTED, 28).private_data_len, 148);
}

// ---- calls in a wrong state

TEST_F(Measured, AConnectionRefusesWhatIsForItsBeginning) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  EXPECT_EQ(passive.Establish(passive_id), EINVAL);
  EXPECT_EQ(passive.Reject(passive_id), EINVAL);
  EXPECT_EQ(active.Listen(active_id), EINVAL);
  EXPECT_EQ(active.Bind(active_id, active.address(), 0), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
}

TEST_F(Measured, AListenerDisconnectsWithoutEffectAndTakesNoAnswers) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  EXPECT_EQ(passive.Disconnect(listener), 0);
  EXPECT_EQ(passive.Reject(listener), EINVAL);
  EXPECT_EQ(passive.Establish(listener), EINVAL);
  ASSERT_NO_FATAL_FAILURE(Establish());
}

TEST_F(Measured, AfterAllEndedFurtherDisconnectsAnswerZeroAndSayNothing) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

// ---- parameters

TEST_F(Measured, ZeroParametersStayZero) {
  ConnectSpec zero;
  zero.responder_resources = zero.initiator_depth = 0;
  zero.retry_count = zero.rnr_retry_count = 0;
  ASSERT_NO_FATAL_FAILURE(Establish(zero, zero));
  for (const EventCopy& event : {request, active_established}) {
    EXPECT_EQ(event.conn.responder_resources, 0);
    EXPECT_EQ(event.conn.initiator_depth, 0);
    EXPECT_EQ(event.conn.retry_count, 0);
    EXPECT_EQ(event.conn.rnr_retry_count, 0);
  }
}

TEST_F(Measured, TheGreatestParametersAreTheDevicesAndRetriesAreThreeBits) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpNorRetries;
  ConnectSpec most;
  most.responder_resources = RDMA_MAX_RESP_RES;
  most.initiator_depth = RDMA_MAX_INIT_DEPTH;
  most.retry_count = most.rnr_retry_count = 15;
  ASSERT_NO_FATAL_FAILURE(Establish(most, most));
  EXPECT_EQ(request.conn.responder_resources, 128);
  EXPECT_EQ(request.conn.initiator_depth, 128);
  EXPECT_EQ(request.conn.retry_count, 7);
  EXPECT_EQ(request.conn.rnr_retry_count, 7);
  EXPECT_EQ(active_established.conn.initiator_depth, 128);
  EXPECT_EQ(active_established.conn.rnr_retry_count, 7);
}

// ---- backlog

TEST_F(Measured, TheBacklogCountsRequestsUntilTheyAreFetchedNotUntilTheyAreAccepted) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 1));
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(Ask());
    ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);  // fetched, never accepted
  }
}

TEST_F(Measured, BacklogZeroIsNoLimitOfOneOrTwo) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 0));
  for (int i = 0; i < 6; ++i) ASSERT_NO_FATAL_FAILURE(Ask());
  for (int i = 0; i < 6; ++i) ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}

// ---- outstanding work

TEST_F(Measured, ReceivesAreFlushedByTheOwnDisconnectNotByThePeers) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Establish());
  const Buffer here = Allocate(64), there = Allocate(64);
  const Region h = active.Register(here), t = passive.Register(there);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(active.PostReceive(active_qp, ReceiveInto(100 + i, here, h)), 0);
    ASSERT_EQ(passive.PostReceive(passive_qp, ReceiveInto(200 + i, there, t)), 0);
  }
  ASSERT_EQ(active.Disconnect(active_id), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    const ibv_wc wc = active.Poll(active_qp, Queue::kReceive).wc;
    EXPECT_EQ(wc.wr_id, 100 + i);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(passive.Poll(passive_qp, Queue::kReceive, kQuiet_ms).found);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(passive.Poll(passive_qp, Queue::kReceive).wc.wr_id, 200 + i);
  }
  ASSERT_EQ(active.PostSend(active_qp, SendOf(9, here, h)), 0);
  EXPECT_EQ(active.Poll(active_qp, Queue::kSend).wc.status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(active.PostReceive(active_qp, ReceiveInto(8, here, h)), 0);
  EXPECT_FALSE(active.Poll(active_qp, Queue::kReceive, kQuiet_ms).found);
}

TEST_F(Measured, DestroyingTheQpAloneTellsThePeerNothing) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.DestroyCmQp(active_id, active_qp), 0);
  ExpectQuiet(passive);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
}

// ---- datagrams

TEST_F(Measured, DatagramsDisconnectWithoutEffectAndResolveOnce) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP));
  active_qp = active.CreateCmQp(active_id);
  ASSERT_GE(active_qp, 0);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_GE(request.id, 0);
  EXPECT_EQ(passive.FieldsOf(request.id).num_paths, 0);
  ASSERT_GE(passive.CreateCmQp(request.id), 0);
  ASSERT_EQ(passive.Accept(request.id, {}), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(passive.Disconnect(request.id), 0);
  ExpectQuiet(active);
  ExpectQuiet(passive);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
}

// ---- the results of the calls; both ends in this process

struct DestroyEp {
  void operator()(rdma_cm_id* id) const { rdma_destroy_ep(id); }
};
using Ep = std::unique_ptr<rdma_cm_id, DestroyEp>;

Ep NewSynchronousId() {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  return Ep(id);
}

int ResolveTo(rdma_cm_id* id, const std::string& address, uint16_t port) {
  sockaddr_in to = SocketAddress(address, port);
  return rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000) == 0 ? 0 : errno;
}

TEST(MeasuredPath, IsOneRecordWithTheLinksValues) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  const Ep id = NewSynchronousId();
  ASSERT_EQ(ResolveTo(id.get(), RemoteAddress(), 7777), 0);
  EXPECT_EQ(id->route.num_paths, 0);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  ASSERT_EQ(id->route.num_paths, 1);
  const ibv_sa_path_rec& path = id->route.path_rec[0];
  const ibv_gid from = GidOf(LocalAddress()), to = GidOf(RemoteAddress());
  EXPECT_EQ(memcmp(path.sgid.raw, from.raw, 16), 0);
  EXPECT_EQ(memcmp(path.dgid.raw, to.raw, 16), 0);
  EXPECT_EQ(path.hop_limit, 64);
  EXPECT_EQ(path.traffic_class, 0);
  EXPECT_EQ(path.reversible, 1);
  EXPECT_EQ(path.numb_path, 1);
  EXPECT_EQ(ntohs(path.pkey), 0xffff);
  EXPECT_EQ(path.sl, 0);
  EXPECT_EQ(path.mtu_selector, 2);
  EXPECT_EQ(path.rate_selector, 2);
  EXPECT_EQ(path.rate, 0);
  EXPECT_EQ(path.packet_life_time_selector, 2);
  EXPECT_EQ(path.packet_life_time, 18);
}

TEST(MeasuredPath, TypeOfServiceAndAckTimeoutShapeIt) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  const Ep id = NewSynchronousId();
  uint8_t tos = 0x20, ack_timeout = 10;
  ASSERT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
  ASSERT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1),
            0);
  ASSERT_EQ(ResolveTo(id.get(), RemoteAddress(), 1), 0);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  EXPECT_EQ(id->route.path_rec[0].traffic_class, 0x20);
  EXPECT_EQ(id->route.path_rec[0].packet_life_time, 9);
}

TEST(MeasuredAddress, DestinationsWithoutARoute) {
  EXPECT_EQ(ResolveTo(NewSynchronousId().get(), "203.0.113.1", 1), ENETUNREACH);
  EXPECT_EQ(ResolveTo(NewSynchronousId().get(), "255.255.255.255", 1), ENETUNREACH);
}

TEST(MeasuredAddress, PortZeroAWildcardAndAGroupResolve) {
  EXPECT_EQ(ResolveTo(NewSynchronousId().get(), RemoteAddress(), 0), 0);
  EXPECT_EQ(ResolveTo(NewSynchronousId().get(), "0.0.0.0", 1), 0);
  EXPECT_EQ(ResolveTo(NewSynchronousId().get(), "239.1.1.1", 1), 0);
}

TEST(MeasuredAddress, OtherFamiliesAreInvalid) {
  const Ep id = NewSynchronousId();
  sockaddr_in to = SocketAddress(RemoteAddress(), 1);
  for (const sa_family_t family : {AF_UNIX, AF_UNSPEC}) {
    to.sin_family = family;
    EXPECT_EQ(rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 100), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&to)), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(id->verbs, nullptr);
}

TEST(MeasuredSynchronous, ARefusedConnectKeepsItsEvent) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  const Ep id = NewSynchronousId();
  ASSERT_EQ(ResolveTo(id.get(), RemoteAddress(), 9), 0);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  ibv_qp_init_attr init{};
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ASSERT_EQ(rdma_create_qp(id.get(), nullptr, &init), 0);
  EXPECT_NE(id->send_cq, nullptr);
  EXPECT_NE(id->recv_cq, nullptr);
  EXPECT_EQ(rdma_connect(id.get(), nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(id->event->status, 8);
  EXPECT_EQ(id->event->param.conn.private_data_len, 148);
}

TEST(MeasuredIdle, AnIdWithoutADeviceRefusesAllThatNeedsOne) {
  const Ep owner = NewSynchronousId();
  rdma_cm_id* id = owner.get();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  int mask = 0;
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_reject(id, nullptr, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_establish(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_init_qp_attr(id, &attr, &mask), -1);
  EXPECT_EQ(errno, EINVAL);
}

// The real library crashes on each of these. The emulator does not copy this defect.

TEST(MeasuredCrash, ResolvingTheRouteOfAnUnboundIdIsInvalid) {
  EXPECT_EQ(rdma_resolve_route(NewSynchronousId().get(), 1000), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(MeasuredCrash, CreatingTheQpOfAnUnboundIdIsInvalid) {
  ibv_qp_init_attr init{};
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(rdma_create_qp(NewSynchronousId().get(), nullptr, &init), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(MeasuredCrash, AcceptingWithoutParametersAndQpIsInvalid) {
  EXPECT_EQ(rdma_accept(NewSynchronousId().get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(MeasuredCrash, ConnectingAnUnboundIdWithParametersIsInvalid) {
  rdma_conn_param parameters{};
  EXPECT_EQ(rdma_connect(NewSynchronousId().get(), &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace rdma_contract
