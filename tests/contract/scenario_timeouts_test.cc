// The measured scenarios of a silent side. The other side gets an event when the CM's retries are
// exhausted, one or two minutes later. (kernel: cm.c, cm_process_send_error; facts: rxe.jsonl)
#include <cerrno>

#include "tests/contract/support/connection.h"

namespace rdma_contract {
namespace {

// The CM gives up a REQ after 16 sends of 6 s each, and a REP, SIDR_REQ or DREQ after 16 of 4 s.
constexpr int kRetriesSpent_ms = 118'000;
// Longer than all sends of a REQ without an MRA.
constexpr int kLongerThanTheRetries_ms = 105'000;
constexpr int kLongerThanTheAnswers_ms = 75'000;  // longer than all sends of a REP

class Timeouts : public ConnectionTest {
 protected:
  // Sends a request to `address`, which never answers. Checks the active side's event.
  void ExpectUnreachable(const std::string& address, uint8_t retry_count) {
    active_id = active.CreateId();
    ASSERT_EQ(active.ResolveAddr(active_id, address, 7000), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(active.ResolveRoute(active_id), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
    active_qp = active.CreateCmQp(active_id);
    ASSERT_GE(active_qp, 0);
    ConnectSpec spec;
    spec.retry_count = retry_count;
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    const EventCopy event =
        ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, kRetriesSpent_ms);
    EXPECT_EQ(event.private_data_len, 0);
    EXPECT_FALSE(event.has_private_data);
    // The library never changed its state, because no answer arrived.
    EXPECT_EQ(active.StateOf(active_qp), IBV_QPS_INIT);
    EXPECT_EQ(active.Disconnect(active_id), 0);
    ExpectQuiet(active);
    EXPECT_EQ(active.DestroyId(active_id), 0);
  }
};
using ScenarioUnreach = Timeouts;
using ScenarioUnreachRetry0 = Timeouts;
using ScenarioUnreachHost = Timeouts;
using ScenarioNoaccept = Timeouts;
using ScenarioRepTimeout = Timeouts;
using ScenarioUdNoaccept = Timeouts;
using ScenarioSyncSilentPeer = Timeouts;

TEST_F(ScenarioUnreach, ASilentAddressIsUnreachableWhenTheRetriesAreSpent) {
  if (SilentAddress().empty()) GTEST_SKIP() << "no silent address here";
  ExpectUnreachable(SilentAddress(), 7);
}

TEST_F(ScenarioUnreachRetry0, TheRetryCountIsTheQueuePairs) {
  if (SilentAddress().empty()) GTEST_SKIP() << "no silent address here";
  ExpectUnreachable(SilentAddress(), 0);
}

TEST_F(ScenarioUnreachRetry0, TheRetryCountDoesNotShortenTheCms) {
  if (SilentAddress().empty()) GTEST_SKIP() << "no silent address here";
  active_id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(active_id, SilentAddress(), 7000), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(active_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ConnectSpec spec;
  spec.retry_count = 0;
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  const EventCopy early = active.NextEvent(DevicesTime_ms(20'000));  // several sends
  EXPECT_FALSE(early.found) << Describe(early);
}

TEST_F(ScenarioUnreachHost, AMachineWithoutRdmaIsUnreachable) {
  if (AddressWithoutRdma().empty()) GTEST_SKIP() << "no machine without RDMA here";
  ExpectUnreachable(AddressWithoutRdma(), 7);
}

TEST_F(ScenarioNoaccept, ARequestThatIsHeldIsNotGivenUpAndALateAcceptWorks) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  const EventCopy early = active.NextEvent(DevicesTime_ms(kLongerThanTheRetries_ms));
  ASSERT_FALSE(early.found) << Describe(early);
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ExpectQuiet(passive);
}

TEST_F(ScenarioRepTimeout, AnAnswerThatIsHeldIsNotGivenUpAndALateEstablishWorks) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ConnectSpec spec;
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_GE(request.id, 0);
  spec.qp_num = ForeignQpn();
  ASSERT_EQ(passive.Accept(request.id, spec), 0);
  ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  // The active side's CM sends an MRA: its application holds the answer.
  const EventCopy early = passive.NextEvent(DevicesTime_ms(kLongerThanTheAnswers_ms));
  ASSERT_FALSE(early.found) << Describe(early);
  ASSERT_EQ(active.Establish(active_id), 0);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED).id, request.id);
}

TEST_F(ScenarioUdNoaccept, AResolutionThatIsNotAnsweredIsUnreachable) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_UDP));
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_UDP));
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  const EventCopy event =
      ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, kRetriesSpent_ms);
  EXPECT_EQ(event.private_data_len, 0);
  EXPECT_FALSE(event.has_private_data);
  EXPECT_EQ(event.ud.qp_num, 0u);
  EXPECT_EQ(event.ud.qkey, 0u);
}

TEST_F(ScenarioSyncSilentPeer, ADisconnectThatIsNotAnsweredEndsWithDisconnectedAndTimedOut) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  // The peer is alive and does not disconnect, so its kernel sends no DREP.
  const EventCopy event =
      ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT, kRetriesSpent_ms);
  EXPECT_EQ(event.id, active_id);
  ExpectEvent(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

}  // namespace
}  // namespace rdma_contract
