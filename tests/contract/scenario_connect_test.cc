// The measured scenarios of connection setup: private data and parameters, rejections, backlog, ids
// that resolve. Each suite has its scenario's name. (facts: rxe.jsonl)
#include <cerrno>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

struct QpQuery {
  int error;
  ibv_qp_attr attr;
};
QpQuery QueryStep(State& state, const int& qp) {
  QpQuery query{};
  ibv_qp_init_attr init{};
  constexpr int kAll = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_ACCESS_FLAGS |
                       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT |
                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
  query.error = ibv_query_qp(state.qps[static_cast<size_t>(qp)].qp, &query.attr, kAll, &init);
  return query;
}

// ---- priv: private data, and the effect of the two sides' parameters on their queue pairs

class ScenarioPriv : public ConnectionTest {
 protected:
  ibv_qp_attr AttributesOf(Side& side, int qp) {
    const QpQuery query = side.worker().Call(&QueryStep, qp);
    EXPECT_EQ(query.error, 0);
    return query.attr;
  }
};

TEST_F(ScenarioPriv, BothQpsAreInInitBeforeTheHandshake) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_INIT);
  passive_qp = passive.CreateCmQp(passive_id);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_INIT);
}

TEST_F(ScenarioPriv, TheAcceptingQpIsReadyToSendAsSoonAsAcceptReturns) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
}

TEST_F(ScenarioPriv, TheActiveQpMovesWhenItsEventIsFetched) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_INIT);
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
}

TEST_F(ScenarioPriv, TheQpsMirrorEachOther) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  const ibv_qp_attr here = AttributesOf(active, active_qp),
                    there = AttributesOf(passive, passive_qp);
  EXPECT_EQ(here.dest_qp_num, passive.FieldsOf(passive_id).qp_num);
  EXPECT_EQ(there.dest_qp_num, active.FieldsOf(active_id).qp_num);
  EXPECT_EQ(here.sq_psn, there.rq_psn);
  EXPECT_EQ(here.rq_psn, there.sq_psn);
  EXPECT_EQ(here.path_mtu, there.path_mtu);
  EXPECT_EQ(here.ah_attr.is_global, 1);
  EXPECT_EQ(memcmp(&here.ah_attr.grh.dgid, GidOf(passive.address()).raw, 16), 0);
  EXPECT_EQ(here.ah_attr.grh.flow_label, there.ah_attr.grh.flow_label);
  EXPECT_EQ(here.ah_attr.grh.hop_limit, 64);
}

TEST_F(ScenarioPriv, ParametersBecomeAttributesOfTheQps) {
  ConnectSpec asked, answered;
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  asked.retry_count = 6;
  asked.rnr_retry_count = 5;
  answered.responder_resources = 2;
  answered.initiator_depth = 4;
  answered.rnr_retry_count = 3;
  ASSERT_NO_FATAL_FAILURE(Establish(asked, answered));
  const ibv_qp_attr here = AttributesOf(active, active_qp),
                    there = AttributesOf(passive, passive_qp);
  // The passive side's answer determines the outstanding READs in both directions.
  EXPECT_EQ(here.max_rd_atomic, 2);
  EXPECT_EQ(there.max_rd_atomic, 4);
  EXPECT_GE(here.max_dest_rd_atomic, 4);  // rounded up to a power of two
  EXPECT_GE(there.max_dest_rd_atomic, 2);
  EXPECT_EQ(here.retry_cnt, 6);
  EXPECT_EQ(there.retry_cnt, 6);
  // Each side uses the retry count that the other side requested.
  EXPECT_EQ(here.rnr_retry, 3);
  EXPECT_EQ(there.rnr_retry, 5);
  EXPECT_EQ(here.min_rnr_timer, 0);
  EXPECT_EQ(here.timeout, there.timeout);
}

TEST_F(ScenarioPriv, WithoutResponderResourcesThePeerMayNotRead) {
  ConnectSpec none;
  none.responder_resources = none.initiator_depth = 0;
  ASSERT_NO_FATAL_FAILURE(Establish(none, none));
  for (const ibv_qp_attr& attr :
       {AttributesOf(active, active_qp), AttributesOf(passive, passive_qp)}) {
    EXPECT_EQ(attr.max_rd_atomic, 0);
    EXPECT_EQ(attr.max_dest_rd_atomic, 0);
    EXPECT_EQ(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ, 0u);
    EXPECT_NE(attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE, 0u);
  }
}

TEST_F(ScenarioPriv, WithResponderResourcesThePeerMayReadAndWriteAndNoAtomics) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  const auto flags = static_cast<int>(AttributesOf(passive, passive_qp).qp_access_flags);
  EXPECT_EQ(flags & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
}

class ScenarioPrivLength : public ConnectionTest, public testing::WithParamInterface<int> {};

TEST_P(ScenarioPrivLength, OfAConnectIsSeenAtItsFullLength) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request(ConnectSpec(GetParam(), 11)));
  ExpectPrivateData(request, 56, GetParam(), 11);
}

TEST_P(ScenarioPrivLength, OfAnAcceptIsSeenAtItsFullLength) {
  ASSERT_NO_FATAL_FAILURE(Establish({}, ConnectSpec(GetParam(), 12)));
  ExpectPrivateData(active_established, 196, GetParam(), 12);
}

TEST_P(ScenarioPrivLength, OfARejectIsSeenAtItsFullLength) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id, GetParam(), 13), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28), 148, GetParam(), 13);
}
INSTANTIATE_TEST_SUITE_P(All, ScenarioPrivLength, testing::Values(0, 1, 55, 56));

class ScenarioPrivTooLong : public ConnectionTest, public testing::WithParamInterface<int> {};

TEST_P(ScenarioPrivTooLong, OfAConnectIsInvalidAndTheIdCanStillConnect) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, ConnectSpec(GetParam())), EINVAL);
  ExpectQuiet(passive);
}
INSTANTIATE_TEST_SUITE_P(All, ScenarioPrivTooLong, testing::Values(57, 92, 196, 255));

// ---- nolistener

using ScenarioNolistener = ConnectionTest;

TEST_F(ScenarioNolistener, TheIdStaysWhereItWasAndNothingFollows) {
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_TCP, 9));
  active_qp = active.CreateCmQp(active_id);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  const EventCopy rejected = ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 8);
  ExpectPrivateData(rejected, 148, 0);
  const IdFields fields = active.FieldsOf(active_id);
  EXPECT_TRUE(fields.has_verbs && fields.has_qp && fields.has_channel);
  EXPECT_EQ(fields.num_paths, 1);
  EXPECT_EQ(ntohs(fields.destination.sin_port), 9);
  ExpectQuiet(active);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  ExpectQuiet(active);
  EXPECT_EQ(active.DestroyId(active_id), 0);
}

TEST_F(ScenarioNolistener, ADestroyedListenerListensNoMore) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_EQ(passive.DestroyId(listener), 0);
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 8);
}

TEST_F(ScenarioNolistener, AListenerOfAnotherPortSpaceIsNoListener) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_TCP));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 8);
}

// ---- reject

using ScenarioReject = ConnectionTest;

TEST_F(ScenarioReject, ARejectedPairIsOverOnBothSides) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request(ConnectSpec(2, 7)));
  ExpectPrivateData(request, 56, 2, 7);
  ASSERT_EQ(passive.Reject(passive_id, 10, 14), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28), 148, 10, 14);
  EXPECT_EQ(passive.Reject(passive_id, 10), EINVAL);
  EXPECT_EQ(passive.Accept(passive_id, {}), EINVAL);
  EXPECT_EQ(passive.CreateCmQp(passive_id), -EINVAL);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
  EXPECT_EQ(passive.DestroyId(passive_id), 0);
}

TEST_F(ScenarioReject, WithoutPrivateDataItIsAllZeroes) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28), 148, 0);
}

TEST_F(ScenarioReject, AnActiveIdDestroyedBeforeItsRequestIsFetchedLeavesTheRequest) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  // The request has arrived when a later one has arrived.
  int second = -1;
  ASSERT_NO_FATAL_FAILURE(Resolve(&second));
  ASSERT_GE(active.CreateCmQp(second), 0);
  ASSERT_EQ(active.CmConnect(second, {}), 0);
  const EventCopy first = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(active.DestroyId(second), 0);
  const EventCopy left = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_GE(left.id, 0);
  ExpectQuiet(passive);
  EXPECT_EQ(passive.CreateCmQp(left.id), -EINVAL);
  EXPECT_EQ(passive.Accept(left.id, {}), EINVAL);
  EXPECT_GE(passive.CreateCmQp(first.id), 0);
  EXPECT_EQ(passive.Accept(first.id, {}), 0);
}

// ---- backlog

class ScenarioBacklog : public ConnectionTest, public testing::WithParamInterface<int> {
 protected:
  void Ask() {
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Resolve(&id));
    ASSERT_GE(active.CreateCmQp(id), 0);
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
};

TEST_P(ScenarioBacklog, WhatIsBeyondItIsDroppedAndComesAgainWhenThereIsRoom) {
  const int backlog = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, backlog));
  for (int i = 0; i < 6; ++i) ASSERT_NO_FATAL_FAILURE(Ask());
  ExpectQuiet(active);  // not rejected but dropped
  const int kept = backlog == 0 ? 6 : backlog;
  for (int i = 0; i < kept; ++i) ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ExpectQuiet(passive);
  ASSERT_NO_FATAL_FAILURE(Ask());
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}
INSTANTIATE_TEST_SUITE_P(All, ScenarioBacklog, testing::Values(0, 1, 2, 4));

// ---- ud: resolution of a UD service

class ScenarioUd : public ConnectionTest, public testing::WithParamInterface<int> {
 protected:
  void Ask(const ConnectSpec& spec) {
    if (listener < 0) {
      ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
    }
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP));
    ASSERT_GE(active.CreateCmQp(active_id), 0);
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_GE(request.id, 0);
  }
};

TEST_P(ScenarioUd, PrivateDataOfARequestIsSeenAtItsFullLength) {
  ASSERT_NO_FATAL_FAILURE(Ask(ConnectSpec(GetParam(), 15)));
  ExpectPrivateData(request, 180, GetParam(), 15);
}
INSTANTIATE_TEST_SUITE_P(All, ScenarioUd, testing::Values(0, 1, 56, 136, 180));

using ScenarioUdAnswer = ScenarioUd;

TEST_P(ScenarioUdAnswer, PrivateDataOfAnAnswerIsSeenAtItsFullLength) {
  ASSERT_NO_FATAL_FAILURE(Ask({}));
  ConnectSpec answer(GetParam(), 16);
  answer.qp_num = 5;
  ASSERT_EQ(passive.Accept(request.id, answer), 0);
  const EventCopy established = ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  ExpectPrivateData(established, 136, GetParam(), 16);
  EXPECT_EQ(established.ud.qp_num, 5u);  // an id without a QP answers for a QP of another program
  EXPECT_EQ(established.ud.qkey, 0x1234567u);
}
INSTANTIATE_TEST_SUITE_P(All, ScenarioUdAnswer, testing::Values(0, 1, 136));

using ScenarioUdOne = ConnectionTest;

TEST_F(ScenarioUdOne, TheRequestShowsNoQueuePairYet) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.ud.qp_num, 0u);
  EXPECT_EQ(request.ud.qkey, 0u);
  EXPECT_EQ(request.listen_id, listener);
}

TEST_F(ScenarioUdOne, NobodyListensIsUnreachableWithThePrivateDatasFullLength) {
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP, 9));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, 1).private_data_len, 136);
}

// ---- arpfail, resolve: the destination's neighbour

using ScenarioArpfail = ConnectionTest;

TEST_F(ScenarioArpfail, ANeighbourThatNeverAnswersIsAnAddressErrorAndTheIdCanTryAgain) {
  if (UnresolvedAddress().empty()) GTEST_SKIP() << "every neighbour answers here";
  const int id = active.CreateId();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(active.ResolveAddr(id, UnresolvedAddress(), 1, "", 300), 0);
    const EventCopy event = ExpectEvent(active, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    EXPECT_EQ(event.id, id);
    EXPECT_EQ(event.private_data_len, 0);
    EXPECT_FALSE(active.FieldsOf(id).has_verbs);
  }
  ASSERT_EQ(active.ResolveAddr(id, passive.address(), 1), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
}

using ScenarioResolve = ConnectionTest;

TEST_F(ScenarioResolve, ATimeoutOfZeroOrLessIsNoTimeoutForANeighbourThatIsKnown) {
  for (const int timeout_ms : {0, -1}) {
    const int id = active.CreateId();
    ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1, "", timeout_ms), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  }
}

TEST_F(ScenarioResolve, ASourceChoosesTheAddressAndTheWildcardLeavesItOpen) {
  for (const std::string& source : {LocalAddress(), std::string("0.0.0.0")}) {
    const int id = active.CreateId();
    ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1, source), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(active.FieldsOf(id).source.sin_addr.s_addr,
              SocketAddress(LocalAddress(), 0).sin_addr.s_addr);
  }
}

TEST_F(ScenarioResolve, NothingIsFilledInBeforeTheEventIsFetched) {
  const int id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 7777), 0);
  const IdFields before = active.FieldsOf(id);
  EXPECT_FALSE(before.has_verbs);
  EXPECT_EQ(before.port_num, 0);
  EXPECT_EQ(ntohs(before.destination.sin_port), 7777);
  EXPECT_EQ(active.ResolveAddr(id, LocalAddress(), 7777), EINVAL);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(active.ResolveRoute(id), 0);
  EXPECT_EQ(active.FieldsOf(id).num_paths, 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active.FieldsOf(id).num_paths, 1);
}

TEST_F(ScenarioResolve, AnIdMayBeDestroyedAtEveryStep) {
  const int created = active.CreateId();
  EXPECT_EQ(active.DestroyId(created), 0);
  const int asked = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(asked, LocalAddress(), 1), 0);
  EXPECT_EQ(active.DestroyId(asked), 0);
  const int routed = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(routed, LocalAddress(), 1), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(routed), 0);
  EXPECT_EQ(active.DestroyId(routed), 0);
  ExpectQuiet(active);
}

}  // namespace
}  // namespace rdma_contract
