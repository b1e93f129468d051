// rdma_notify(3), and connections that fail without a call. Either a QP cannot change its state
// when the reply arrives, or an answer belongs to a connection that no longer exists.
#include <cerrno>

#include "tests/contract/support/command.h"
#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Notify : public ConnectedTest {
 protected:
  // The passive side has replied. The active side has no QP and has not answered yet.
  void Respond() {
    listener = Listener(passive_channel.get());
    active = Resolved(PortOf(listener.get()));
    rdma_conn_param param = ParametersWith("");
    param.qp_num = ForeignQpn();
    ASSERT_EQ(rdma_connect(active.get(), &param), 0);
    passive = NextRequest(passive_channel.get());
    ASSERT_TRUE(passive);
    ASSERT_EQ(MakeQueues(passive.get()), 0);
    ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
    Expect(channel.get(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  static int NotifyOf(const CmId& id, ibv_event_type type = IBV_EVENT_COMM_EST) {
    return ErrnoOf(rdma_notify(id.get(), type));
  }
};

TEST_F(Notify, CommunicationEstablishedForcesTheEventBeforeTheActiveSideAnswers) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_FALSE(IsReadable(passive_channel.get(), kQuiet_ms));
  EXPECT_EQ(NotifyOf(passive), 0);
  EXPECT_EQ(Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED)->id, passive.get());
}

TEST_F(Notify, TheAnswerThatComesLaterIsNoSecondEvent) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(NotifyOf(passive), 0);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(ErrnoOf(rdma_establish(active.get())), 0);
  EXPECT_FALSE(IsReadable(passive_channel.get(), kQuiet_ms));
  ASSERT_EQ(rdma_disconnect(active.get()), 0);
  Expect(passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Notify, AgainSaysThatItIsConnected) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(NotifyOf(passive), 0);
  EXPECT_EQ(NotifyOf(passive), EISCONN);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_FALSE(IsReadable(passive_channel.get(), kQuiet_ms));
}

TEST_F(Notify, AConnectionThatIsEstablishedSaysSoOnBothSides) {
  if (IsIwarp()) GTEST_SKIP() << kNotifyForcesNothing;
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(NotifyOf(active), EISCONN);
  EXPECT_EQ(NotifyOf(passive), EISCONN);
}

TEST_F(Notify, TheActiveSideHasNothingToForce) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_EQ(NotifyOf(active), EINVAL);
}

TEST_F(Notify, BeforeTheRequestIsAcceptedIsInvalid) {
  if (IsIwarp()) GTEST_SKIP() << kNotifyForcesNothing;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(NotifyOf(passive), EINVAL);
  EXPECT_EQ(NotifyOf(active), EINVAL);
}

TEST_F(Notify, WithoutAConnectionIsInvalid) {
  if (IsIwarp()) GTEST_SKIP() << kNotifyForcesNothing;
  const CmId idle = NewId(channel.get()), bound = NewId(channel.get());
  EXPECT_EQ(NotifyOf(idle), EINVAL);
  ASSERT_EQ(BindTo(bound.get(), here), 0);
  EXPECT_EQ(NotifyOf(bound), EINVAL);
  listener = Listener(passive_channel.get());
  EXPECT_EQ(NotifyOf(listener), EINVAL);
}

TEST_F(Notify, AfterTheEndIsInvalid) {
  if (IsIwarp()) GTEST_SKIP() << kNotifyForcesNothing;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(rdma_disconnect(active.get()), 0);
  Expect(passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(NotifyOf(active), EINVAL);
  EXPECT_EQ(NotifyOf(passive), EINVAL);
}

TEST_F(Notify, OtherEventsAreInvalid) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  ASSERT_NO_FATAL_FAILURE(Respond());
  for (const ibv_event_type type : {IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_SQ_DRAINED,
                                    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_DEVICE_FATAL}) {
    EXPECT_EQ(NotifyOf(passive, type), EINVAL) << ibv_event_type_str(type);
  }
  EXPECT_FALSE(IsReadable(passive_channel.get(), kQuiet_ms));
}

// After a path migration the kernel uses an empty path and cannot send further messages of the
// connection (cm_migrate). The test therefore does not use the kernel's connection afterwards.
TEST_F(Notify, AMigratedPathIsTakenNoteOfWhileConnected) {
  if (IsIwarp()) GTEST_SKIP() << kNotifyForcesNothing;
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_EQ(NotifyOf(passive, IBV_EVENT_PATH_MIG), EINVAL);
  if (!OnTheEmulator()) GTEST_SKIP() << "a kernel's connection would not survive it";
  ASSERT_EQ(ErrnoOf(rdma_establish(active.get())), 0);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(NotifyOf(passive, IBV_EVENT_PATH_MIG), 0);
  EXPECT_EQ(NotifyOf(active, IBV_EVENT_PATH_MIG), 0);
  ASSERT_EQ(rdma_disconnect(active.get()), 0);
  Expect(passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Notify, ASynchronousAcceptEndsByIt) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  listener = Listener(nullptr);
  active = Resolved(PortOf(listener.get()));
  rdma_conn_param param = ParametersWith("");
  param.qp_num = ForeignQpn();
  ASSERT_EQ(rdma_connect(active.get(), &param), 0);
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(rdma_get_request(listener.get(), &request), 0);
  passive.reset(request);
  ASSERT_EQ(MakeQueues(request), 0);
  std::future<int> accepted =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_accept(request, nullptr)); });
  Expect(channel.get(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_TRUE(StillWaits(accepted));
  EXPECT_EQ(NotifyOf(passive), 0);
  EXPECT_EQ(accepted.get(), 0);
}

// ---- failures without a call

TEST_F(Notify, AQpThatCannotBeMovedWhenTheReplyComesIsAConnectError) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(active->qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  const CmEvent failed = NextEvent(channel.get());
  ASSERT_TRUE(failed);
  EXPECT_STREQ(rdma_event_str(failed->event), "RDMA_CM_EVENT_CONNECT_ERROR");
  EXPECT_LT(failed->status, 0);
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_ERR);
  // A connection that was reported as failed has no further events.
  EXPECT_EQ(ErrnoOf(rdma_disconnect(active.get())), 0);
  EXPECT_FALSE(IsReadable(channel.get(), kQuiet_ms));
}

TEST_F(Notify, AcceptingWhenTheQpCannotBeMovedFailsAtOnce) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(passive->qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), EINVAL);
  EXPECT_FALSE(IsReadable(channel.get(), kQuiet_ms));  // the request is still held
  EXPECT_EQ(ErrnoOf(rdma_reject(passive.get(), nullptr, 0)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(Notify, ARequestWithAQpNumberThatLivesIsStale) {
  if (IsIwarp()) GTEST_SKIP() << kNeedsQp;
  listener = Listener(passive_channel.get());
  rdma_conn_param param = ParametersWith("");
  param.qp_num = ForeignQpn();
  active = Resolved(PortOf(listener.get()));
  ASSERT_EQ(rdma_connect(active.get(), &param), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  const CmId again = Resolved(PortOf(listener.get()));
  ASSERT_EQ(rdma_connect(again.get(), &param), 0);
  const CmEvent event = NextEvent(channel.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, again.get());
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 10);
}

}  // namespace
}  // namespace rdma_contract
