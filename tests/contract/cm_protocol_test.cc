// The protocol between two connection managers, as far as calls can control it. Tests simultaneous
// requests, aborted setups, and ids that are destroyed meanwhile (IBTA 12.9; the kernel's cm.c).
#include <cerrno>

#include "tests/contract/support/connection.h"

namespace rdma_contract {
namespace {

class Protocol : public ConnectionTest {
 protected:
  // Both ids have no QPs. The active id gets its CONNECT_RESPONSE.
  void Respond() {
    ASSERT_NO_FATAL_FAILURE(StartListening());
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
    ConnectSpec spec(10, 3);
    spec.qp_num = active_number;
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_GE(request.id, 0);
    passive_id = request.id;
    spec.qp_num = ForeignQpn();
    ASSERT_EQ(passive.Accept(passive_id, spec), 0);
    ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  void EstablishWithoutQps() {
    ASSERT_NO_FATAL_FAILURE(Respond());
    ASSERT_EQ(active.Establish(active_id), 0);
    ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  }

  const uint32_t active_number = ForeignQpn();  // of the active id's queue pair
};

// RDMA CM has no peer-to-peer connections: two simultaneous requests make two connections.
TEST_F(Protocol, BothSidesMayAskAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  const int back = active.CreateId();
  ASSERT_EQ(active.Bind(back, active.address(), 0), 0);
  ASSERT_EQ(active.Listen(back), 0);
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  const int asks = passive.CreateId();
  ASSERT_EQ(passive.ResolveAddr(asks, active.address(), static_cast<uint16_t>(active.PortOf(back))),
            0);
  ExpectEvent(passive, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(passive.ResolveRoute(asks), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ConnectSpec spec;
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(passive.CmConnect(asks, spec), 0);
  const int here = ExpectEvent(active, RDMA_CM_EVENT_CONNECT_REQUEST).id;
  const int there = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST).id;
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(active.Accept(here, spec), 0);
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(passive.Accept(there, spec), 0);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE).id, active_id);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_RESPONSE).id, asks);
  ASSERT_EQ(active.Establish(active_id), 0);
  ASSERT_EQ(passive.Establish(asks), 0);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED).id, here);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED).id, there);
}

TEST_F(Protocol, BothSidesMayDisconnectAtOnce) {
  ASSERT_NO_FATAL_FAILURE(EstablishWithoutQps());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  // The side whose CM still has to answer a DREQ answers it now. The other side has nothing to do.
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

TEST_F(Protocol, ASecondAcceptTakesTheFirstBack) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_EQ(passive.Accept(passive_id, {}), EINVAL);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  ExpectQuiet(passive);
}

TEST_F(Protocol, AReplyMayBeTakenBackByARejection) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(passive.Reject(passive_id, 3, 7), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28), 148, 3, 7);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  ExpectQuiet(passive);
}

TEST_F(Protocol, AReplyIsTakenBackByDestroyingItsId) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(passive.DestroyId(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
}

TEST_F(Protocol, ARequestIsTakenBackByDestroyingItsIdAndTheAcceptFails) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ConnectSpec spec;
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  passive_id = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST).id;
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectQuiet(passive);  // before its accept an id gets no events
  EXPECT_EQ(passive.Accept(passive_id, spec), EINVAL);
  ExpectQuiet(passive);
}

TEST_F(Protocol, ADisconnectGoesOnThoughItsIdIsDestroyed) {
  ASSERT_NO_FATAL_FAILURE(EstablishWithoutQps());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectQuiet(active);
}

TEST_F(Protocol, DestroyingTheIdThatOwesAnAnswerGivesIt) {
  ASSERT_NO_FATAL_FAILURE(EstablishWithoutQps());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.DestroyId(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(Protocol, AQpNumberMayConnectAgainOnceItsConnectionHasEnded) {
  ASSERT_NO_FATAL_FAILURE(EstablishWithoutQps());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);  // each side has its own timewait
  int again = -1;
  ASSERT_NO_FATAL_FAILURE(Resolve(&again));
  ConnectSpec spec;
  spec.qp_num = active_number;
  ASSERT_EQ(active.CmConnect(again, spec), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(Protocol, AnIdConnectsOnce) {
  ASSERT_NO_FATAL_FAILURE(EstablishWithoutQps());
  ConnectSpec spec;
  spec.qp_num = ForeignQpn();
  EXPECT_EQ(active.CmConnect(active_id, spec), EINVAL);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(active.CmConnect(active_id, spec), EINVAL);
  EXPECT_EQ(active.ResolveAddr(active_id, passive.address(), port), EINVAL);
}

}  // namespace
}  // namespace rdma_contract
