// The events of a connection on asynchronous ids: request, accept, reject, disconnect, timewait.
// Their order, status, private data and parameters were measured on the kernel's rxe.
#include <cerrno>
#include <cstring>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/pending.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Connection : public ConnectionTest {};

TEST_F(Connection, IsEstablishedOnBothSides) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(active_established.id, active_id);
  EXPECT_EQ(passive_established.id, passive_id);
  EXPECT_EQ(request.listen_id, listener);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
}

TEST_F(Connection, CarriesData) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  const Buffer from = Allocate(10000), to = Allocate(10000);
  FillPattern(from.bytes(), 1);
  const Region f = active.Register(from), t = passive.Register(to);
  ASSERT_EQ(passive.PostReceive(passive_qp, ReceiveInto(1, to, t)), 0);
  ASSERT_EQ(active.PostSend(active_qp, SendOf(2, from, f)), 0);
  EXPECT_EQ(active.Poll(active_qp, Queue::kSend).wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(passive.Poll(passive_qp, Queue::kReceive).wc.byte_len, 10000u);
  EXPECT_EQ(FirstDifference(to.bytes(), 1), -1);
  ASSERT_EQ(passive.PostSend(passive_qp, WriteTo(3, to, t, from.address(), f.rkey)), 0);
  EXPECT_EQ(passive.Poll(passive_qp, Queue::kSend).wc.status, IBV_WC_SUCCESS);
}

TEST_F(Connection, PrivateDataArrivesPaddedToTheMessagesFullLength) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(Establish(ConnectSpec(10, 3), ConnectSpec(10, 4)));
  ExpectPrivateData(request, 56, 10, 3);
  ExpectPrivateData(active_established, 196, 10, 4);
  EXPECT_EQ(passive_established.private_data_len, 0);
  EXPECT_FALSE(passive_established.has_private_data);
}

TEST_F(Connection, PrivateDataOfTheGreatestLengthPasses) {
  ASSERT_NO_FATAL_FAILURE(Establish(ConnectSpec(56, 3), ConnectSpec(196, 4)));
  ExpectPrivateData(request, 56, 56, 3);
  ExpectPrivateData(active_established, 196, 196, 4);
}

TEST_F(Connection, OneByteMoreIsRefused) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, ConnectSpec(57)), EINVAL);
}

TEST_F(Connection, AnAcceptWithTooMuchPrivateDataRejectsAndFailsItsQp) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  passive_qp = passive.CreateCmQp(passive_id);
  EXPECT_EQ(passive.Accept(passive_id, ConnectSpec(197)), EINVAL);
  EXPECT_EQ(active.NextEvent().event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_ERR);
}

TEST_F(Connection, ResourcesAndDepthChangePlaces) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpNorRetries;
  ConnectSpec asked, answered;
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  asked.flow_control = 1;
  asked.retry_count = 6;
  asked.rnr_retry_count = 5;
  answered.responder_resources = 2;
  answered.initiator_depth = 6;
  answered.flow_control = 1;
  answered.rnr_retry_count = 4;
  ASSERT_NO_FATAL_FAILURE(Establish(asked, answered));
  EXPECT_EQ(request.conn.responder_resources, 3);
  EXPECT_EQ(request.conn.initiator_depth, 5);
  EXPECT_EQ(request.conn.flow_control, 1);
  EXPECT_EQ(request.conn.retry_count, 6);
  EXPECT_EQ(request.conn.rnr_retry_count, 5);
  EXPECT_EQ(request.conn.qp_num, active.FieldsOf(active_id).qp_num);
  EXPECT_EQ(active_established.conn.responder_resources, 6);
  EXPECT_EQ(active_established.conn.initiator_depth, 2);
  EXPECT_EQ(active_established.conn.retry_count, 0);
  EXPECT_EQ(active_established.conn.rnr_retry_count, 4);
  EXPECT_EQ(active_established.conn.qp_num, passive.FieldsOf(passive_id).qp_num);
  EXPECT_EQ(passive_established.conn.responder_resources, 0);
  EXPECT_EQ(passive_established.conn.qp_num, 0u);
}

TEST_F(Connection, NullParametersAskForAllTheDeviceHas) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpNorRetries;
  ConnectSpec none;
  none.null_parameters = true;
  ASSERT_NO_FATAL_FAILURE(Establish(none, none));
  EXPECT_EQ(request.conn.responder_resources, 128);
  EXPECT_EQ(request.conn.initiator_depth, 128);
  EXPECT_EQ(request.conn.retry_count, 7);
  EXPECT_EQ(request.conn.rnr_retry_count, 7);
  EXPECT_EQ(active_established.conn.responder_resources, 128);
}

TEST_F(Connection, MoreThanTheDeviceHasIsRefused) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ConnectSpec spec;
  spec.responder_resources = 200;
  EXPECT_EQ(active.CmConnect(active_id, spec), EINVAL);
}

TEST_F(Connection, IdsSayWhereTheyLeadTo) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  ASSERT_NO_FATAL_FAILURE(Establish());
  const IdFields here = active.FieldsOf(active_id), there = passive.FieldsOf(passive_id);
  for (const IdFields& fields : {here, there}) {
    EXPECT_TRUE(fields.has_verbs && fields.has_qp && fields.has_pd && fields.has_channel);
    EXPECT_EQ(fields.port_num, 1);
    EXPECT_EQ(fields.num_paths, 1);
    EXPECT_EQ(fields.port_space, RDMA_PS_TCP);
    EXPECT_EQ(fields.qp_type, IBV_QPT_RC);
  }
  EXPECT_EQ(ntohs(here.destination.sin_port), port);
  EXPECT_EQ(here.destination.sin_addr.s_addr, SocketAddress(passive.address(), 0).sin_addr.s_addr);
  EXPECT_EQ(here.source.sin_addr.s_addr, there.destination.sin_addr.s_addr);
  EXPECT_EQ(here.source.sin_port, there.destination.sin_port);
  EXPECT_EQ(memcmp(&here.source_gid, &there.destination_gid, 16), 0);
  EXPECT_EQ(memcmp(&here.destination_gid, &there.source_gid, 16), 0);
}

// ---- disconnecting

TEST_F(Connection, DisconnectTellsThePeerAndTheCallerOnlyWhenThePeerDisconnectsToo) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_ERR);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
  ExpectQuiet(active);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_ERR);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(Connection, ThePassiveSideMayDisconnectFirst) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Connection, DisconnectingAgainIsFine) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Connection, AnIdIsForOneConnectionOnly) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  EXPECT_EQ(active.ResolveAddr(active_id, passive.address(), port), EINVAL);
  EXPECT_EQ(passive.Accept(passive_id, {}), EINVAL);
}

TEST_F(Connection, DestroyingAnEndTellsTheOther) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
}

TEST_F(Connection, OutlivesItsListener) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.DestroyId(listener), 0);
  ExpectQuiet(passive);
  ExpectQuiet(active);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
}

// ---- rejecting

TEST_F(Connection, NobodyListensIsRejectedWithReasonEight) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_TCP, 9));
  active_qp = active.CreateCmQp(active_id);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  const EventCopy rejected = ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 8);
  EXPECT_EQ(rejected.private_data_len, 148);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_ERR);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  EXPECT_EQ(active.ResolveAddr(active_id, passive.address(), 9), EINVAL);
  EXPECT_EQ(active.Disconnect(active_id), 0);
}

TEST_F(Connection, ABoundIdThatDoesNotListenRejectsAsNobody) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  const int bound = passive.CreateId();
  ASSERT_EQ(passive.Bind(bound, passive.address(), 0), 0);
  ASSERT_NO_FATAL_FAILURE(
      Resolve(&active_id, RDMA_PS_TCP, static_cast<uint16_t>(passive.PortOf(bound))));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 8);
}

TEST_F(Connection, RejectCarriesItsPrivateDataAndReason28) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id, 10, 5), 0);
  const EventCopy rejected = ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28);
  ExpectPrivateData(rejected, 148, 10, 5);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_ERR);
  EXPECT_EQ(passive.Reject(passive_id), EINVAL);
  EXPECT_EQ(passive.Accept(passive_id, {}), EINVAL);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
}

TEST_F(Connection, RejectTakes148BytesAndNoMore) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  EXPECT_EQ(passive.Reject(passive_id, 149), EINVAL);
  ASSERT_EQ(passive.Reject(passive_id, 148, 6), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28), 148, 148, 6);
}

TEST_F(Connection, DestroyingARequestRejectsIt) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.DestroyId(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(Connection, DestroyingAListenerRejectsItsUnfetchedRequests) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ASSERT_EQ(passive.DestroyId(listener), 0);
  // The request may still be in flight. It then finds no listener.
  const EventCopy rejected = active.NextEvent();
  EXPECT_EQ(rejected.event, RDMA_CM_EVENT_REJECTED) << Describe(rejected);
  EXPECT_TRUE(rejected.status == 28 || rejected.status == 8) << rejected.status;
}

TEST_F(Connection, AnActiveIdDestroyedBeforeTheAnswerLeavesTheRequestDead) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectQuiet(passive);
  EXPECT_EQ(passive.Accept(passive_id, {}), EINVAL);
}

TEST_F(Connection, AFullBacklogDropsRequestsWithoutAWord) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 2));
  for (int i = 0; i < 4; ++i) {
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Resolve(&id));
    ASSERT_GE(active.CreateCmQp(id), 0);
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
  ExpectQuiet(active);
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ExpectQuiet(passive);
}

// ---- ids without a QP of their own

TEST_F(Connection, WithoutAQpTheAnswerIsAnEventAndEstablishCompletesIt) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ConnectSpec spec(10, 7);
  const uint32_t here = ForeignQpn(), there = ForeignQpn();
  spec.qp_num = here;
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_GE(request.id, 0);
  EXPECT_EQ(request.conn.qp_num, here);
  spec.qp_num = there;
  ASSERT_EQ(passive.Accept(request.id, spec), 0);
  const EventCopy response = ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ExpectPrivateData(response, 196, 10, 7);
  EXPECT_EQ(response.conn.qp_num, there);
  ExpectQuiet(passive);
  ASSERT_EQ(active.Establish(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Connection, AcceptingAResponseIsRefusedAndRejectsIt) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ConnectSpec spec;
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  spec.qp_num = ForeignQpn();  // the same number twice would be a stale connection
  ASSERT_EQ(passive.Accept(request.id, spec), 0);
  ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(active.Accept(active_id, {}), EINVAL);
  ExpectEvent(passive, RDMA_CM_EVENT_REJECTED, 28);
}

// ---- datagrams

class Datagrams : public ConnectionTest {
 protected:
  void Ask(const ConnectSpec& spec = {}) {
    ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP));
    ASSERT_GE(active.CreateCmQp(active_id), 0);
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_GE(request.id, 0);
  }
};

TEST_F(Datagrams, ResolutionGivesTheQpNumberAndTheQkey) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(Ask(ConnectSpec(10, 8)));
  ExpectPrivateData(request, 180, 10, 8);
  ASSERT_GE(passive.CreateCmQp(request.id), 0);
  ASSERT_EQ(passive.Accept(request.id, ConnectSpec(10, 9)), 0);
  const EventCopy established = ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  ExpectPrivateData(established, 136, 10, 9);
  EXPECT_EQ(established.ud.qp_num, passive.FieldsOf(request.id).qp_num);
  EXPECT_EQ(established.ud.qkey, 0x1234567u);
  EXPECT_EQ(established.ud.ah_attr.is_global, 1);
  EXPECT_EQ(established.ud.ah_attr.port_num, 1);
  EXPECT_EQ(memcmp(&established.ud.ah_attr.grh.dgid, GidOf(passive.address()).raw, 16), 0);
  ExpectQuiet(passive);
}

TEST_F(Datagrams, PrivateDataHasItsLimits) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(Ask(ConnectSpec(180, 8)));
  ExpectPrivateData(request, 180, 180, 8);
  ASSERT_GE(passive.CreateCmQp(request.id), 0);
  EXPECT_EQ(passive.Accept(request.id, ConnectSpec(137)), EINVAL);
  ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, 2);  // a failed accept rejects
  int second = -1;
  ASSERT_NO_FATAL_FAILURE(Resolve(&second, RDMA_PS_UDP));
  ASSERT_GE(active.CreateCmQp(second), 0);
  EXPECT_EQ(active.CmConnect(second, ConnectSpec(181)), EINVAL);
}

TEST_F(Datagrams, RejectedIsUnreachableWithStatusTwo) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(Ask());
  ASSERT_EQ(passive.Reject(request.id, 10, 10), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, 2), 136, 10, 10);
}

TEST_F(Datagrams, NobodyListensIsUnreachableWithStatusOne) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP, 9));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, 1);
}

// ---- moving ids between channels

TEST_F(Connection, AMigratedIdGetsItsEventsOnTheNewChannel) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Migrate(active_id, true), 0);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED).id, active_id);
}

TEST_F(Connection, AListenersUnfetchedRequestsMigrateWithIt) {
  // The kernel loses them here. The emulator does not copy this defect.
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ASSERT_TRUE(HasEvent(passive));
  ASSERT_EQ(passive.Migrate(listener, true), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_GE(request.id, 0);
  passive_id = request.id;
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(Connection, ManyConnectionsKeepApart) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 64));
  std::vector<std::pair<int, int>> ids;
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(Request(ConnectSpec(8, 100 + i)));
    ExpectPrivateData(request, 56, 8, 100 + i);
    ASSERT_NO_FATAL_FAILURE(AcceptRequest(ConnectSpec(8, 200 + i)));
    const EventCopy established = ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(established.id, active_id);
    ExpectPrivateData(established, 196, 8, 200 + i);
    ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
    ids.emplace_back(active_id, passive_id);
  }
  for (const auto& [here, there] : ids) {
    ASSERT_EQ(active.Disconnect(here), 0);
    EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED).id, there);
  }
}

}  // namespace
}  // namespace rdma_contract
