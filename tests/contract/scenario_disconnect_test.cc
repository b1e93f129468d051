// The measured scenarios of a connection's end, by either side, by destroying an id and by the
// death of a process, with and without outstanding work. Each suite has its scenario's name.
// (facts: rxe.jsonl)
#include <cerrno>
#include <utility>

#include "tests/contract/support/connection.h"

namespace rdma_contract {
namespace {

using ScenarioDiscActive = ConnectionTest;

TEST_F(ScenarioDiscActive, EachSideIsToldOnceAndLeavesTimewaitOnce) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_ERR);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED).id, passive_id);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  ExpectQuiet(active);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_ERR);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED).id, active_id);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT).id, active_id);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT).id, passive_id);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

TEST_F(ScenarioDiscActive, EventsOfTheEndCarryNothing) {
  ASSERT_NO_FATAL_FAILURE(Establish(ConnectSpec(9, 1), ConnectSpec(9, 2)));
  ASSERT_EQ(active.Disconnect(active_id), 0);
  const EventCopy told = ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  for (const EventCopy& event : {told, ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED),
                                 ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT)}) {
    EXPECT_EQ(event.private_data_len, 0);
    EXPECT_FALSE(event.has_private_data);
    EXPECT_EQ(event.listen_id, -1);
    EXPECT_EQ(event.conn.qp_num, 0u);
    EXPECT_EQ(event.conn.responder_resources, 0);
  }
}

using ScenarioDiscPassive = ConnectionTest;

TEST_F(ScenarioDiscPassive, TheActiveSideStaysReadyUntilItDisconnects) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_ERR);
  ExpectQuiet(active);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  ExpectQuiet(passive);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(ScenarioDiscPassive, BothAtOnceAreBothTold) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  // If the two DREQs crossed, the kernel answers the peer's DREQ when its program disconnects
  // again.
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ExpectEvent(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

using ScenarioDiscDestroy = ConnectionTest;

TEST_F(ScenarioDiscDestroy, DestroyingTheActiveIdIsADisconnect) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.DestroyCmQp(active_id, active_qp), 0);
  ExpectQuiet(passive);  // the end of the QP sends no message
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
  ExpectQuiet(passive);
}

TEST_F(ScenarioDiscDestroy, DestroyingThePassiveIdIsADisconnect) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.DestroyId(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_RTS);
  EXPECT_EQ(passive.DestroyId(listener), 0);
}

TEST_F(ScenarioDiscDestroy, WhatWasToldAndNotFetchedGoesWithTheId) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  int second = active_id;
  const int first_passive = passive_id;
  ASSERT_NO_FATAL_FAILURE(Establish());
  std::swap(second, active_id);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ASSERT_EQ(active.Disconnect(second), 0);
  // Both ids get their events, in order. The first id's event is never fetched.
  const EventCopy other = passive.NextEvent();
  const int left = other.id == first_passive ? passive_id : first_passive;
  ASSERT_EQ(other.event, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.DestroyId(left), 0);
  ExpectQuiet(passive);
}

// ---- outstanding work

class ScenarioDiscTraffic : public ConnectionTest {
 protected:
  void SetUpTraffic() {
    ASSERT_NO_FATAL_FAILURE(Establish());
    here = Allocate(64);
    there = Allocate(64);
    here_region = active.Register(here);
    there_region = passive.Register(there);
  }
  Buffer here, there;
  Region here_region, there_region;
};

TEST_F(ScenarioDiscTraffic, TheCallersReceivesAreFlushedInOrderAndNoMoreThanOnce) {
  ASSERT_NO_FATAL_FAILURE(SetUpTraffic());
  for (uint64_t i = 100; i < 103; ++i)
    ASSERT_EQ(active.PostReceive(active_qp, ReceiveInto(i, here, here_region)), 0);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  for (uint64_t i = 100; i < 103; ++i) {
    const Completion completion = active.Poll(active_qp, Queue::kReceive);
    ASSERT_TRUE(completion.found);
    EXPECT_EQ(completion.wc.wr_id, i);
    EXPECT_EQ(completion.wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wc.qp_num, active.FieldsOf(active_id).qp_num);
  }
  EXPECT_FALSE(active.Poll(active_qp, Queue::kReceive, kQuiet_ms).found);
}

TEST_F(ScenarioDiscTraffic, TheSurvivorsSendToAGoneQpIsPostedAndNeverSucceeds) {
  ASSERT_NO_FATAL_FAILURE(SetUpTraffic());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive.StateOf(passive_qp), IBV_QPS_RTS);
  ASSERT_EQ(passive.PostSend(passive_qp, SendOf(9, there, there_region)), 0);
  const Completion completion = passive.Poll(passive_qp, Queue::kSend, kQuiet_ms);
  EXPECT_TRUE(!completion.found || completion.wc.status != IBV_WC_SUCCESS);
}

TEST_F(ScenarioDiscTraffic, WorkPostedAfterTheOwnDisconnectIsFlushed) {
  ASSERT_NO_FATAL_FAILURE(SetUpTraffic());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ASSERT_EQ(active.PostSend(active_qp, SendOf(9, here, here_region)), 0);
  const Completion completion = active.Poll(active_qp, Queue::kSend);
  ASSERT_TRUE(completion.found);
  EXPECT_EQ(completion.wc.wr_id, 9u);
  EXPECT_EQ(completion.wc.status, IBV_WC_WR_FLUSH_ERR);
}

// ---- death

class Killed : public testing::Test {
 protected:
  void Establish(Side& active, Side& passive) {
    listener = passive.CreateId();
    ASSERT_EQ(passive.Bind(listener, passive.address(), 0), 0);
    ASSERT_EQ(passive.Listen(listener), 0);
    active_id = active.CreateId();
    ASSERT_EQ(active.ResolveAddr(active_id, passive.address(),
                                 static_cast<uint16_t>(passive.PortOf(listener))),
              0);
    ASSERT_EQ(active.NextEvent().event, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(active.ResolveRoute(active_id), 0);
    ASSERT_EQ(active.NextEvent().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    active_qp = active.CreateCmQp(active_id);
    ASSERT_EQ(active.CmConnect(active_id, {}), 0);
    passive_id = passive.NextEvent().id;
    ASSERT_GE(passive_id, 0);
    passive_qp = passive.CreateCmQp(passive_id);
    ASSERT_EQ(passive.Accept(passive_id, {}), 0);
    ASSERT_EQ(active.NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(passive.NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
  }
  // The side gets one event. Its QP is unchanged, and nothing is flushed. Its own disconnect only
  // leads to timewait.
  static void ExpectSurvival(Side& side, int id, int qp) {
    const EventCopy told = side.NextEvent();
    EXPECT_EQ(told.event, RDMA_CM_EVENT_DISCONNECTED) << Describe(told);
    EXPECT_EQ(told.status, 0);
    EXPECT_EQ(side.StateOf(qp), IBV_QPS_RTS);
    EXPECT_FALSE(side.Poll(qp, Queue::kReceive, kQuiet_ms).found);
    EXPECT_EQ(side.Disconnect(id), 0);
    EXPECT_EQ(side.StateOf(qp), IBV_QPS_ERR);
    const EventCopy last = side.NextEvent();
    EXPECT_EQ(last.event, RDMA_CM_EVENT_TIMEWAIT_EXIT) << Describe(last);
    EXPECT_FALSE(side.NextEvent(kQuiet_ms).found);
  }
  int listener = -1, active_id = -1, passive_id = -1, active_qp = -1, passive_qp = -1;
};
using ScenarioKillClient = Killed;
using ScenarioKillServer = Killed;

TEST_F(ScenarioKillClient, TheServerIsToldAndKeepsItsQp) {
  Side active(Place::kLocalProcess), passive(Place::kPeersMachine);
  ASSERT_NO_FATAL_FAILURE(Establish(active, passive));
  active.worker().Kill();
  ExpectSurvival(passive, passive_id, passive_qp);
}

TEST_F(ScenarioKillServer, TheClientIsToldAndKeepsItsQp) {
  Side active(Place::kLocalProcess), passive(Place::kPeersMachine);
  ASSERT_NO_FATAL_FAILURE(Establish(active, passive));
  passive.worker().Kill();
  ExpectSurvival(active, active_id, active_qp);
}

}  // namespace
}  // namespace rdma_contract
