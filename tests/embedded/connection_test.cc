// A program of one thread with its host inside: both sides of a connection, data, faults and
// time-outs. It uses the public headers only.
#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::WithFault;
using std::chrono::seconds;

class ConnectionTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  Pair pair;
};

TEST_F(ConnectionTest, TwoSidesOfOneThreadConnectAndTalk) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  strcpy(pair.client.buffer.data(), "to the server");
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  EXPECT_STREQ(pair.server.buffer.data(), "to the server");
}

TEST_F(ConnectionTest, DisconnectEndsBothSides) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED, 0));
  ASSERT_EQ(rdma_disconnect(pair.server.id), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED, 0));
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
}

TEST_F(ConnectionTest, ARuleRejects) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  WithFault("at = \"cm.req\", reject = 28", [&] {
    ASSERT_EQ(pair.Connect(), 0);
    EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
  });
}

// ib_cm repeats a REQ 15 times. This takes minutes of the host's time but no real time.
TEST_F(ConnectionTest, LostRequestsEndInUnreachableInVirtualTime) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const auto before = host.now();
  WithFault("at = \"cm.req\", drop = true", [&] {
    ASSERT_EQ(pair.Connect(), 0);
    EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
  });
  EXPECT_GE(host.now() - before, seconds(60));
}

TEST_F(ConnectionTest, NobodyAtTheAddressIsUnreachableToo) {
  pair.address = "127.0.0.77";
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
}

// The only thread waits elsewhere, so no thread can answer the request.
TEST_F(ConnectionTest, ARequestThatTheOnlyThreadDoesNotAnswerTimesOut) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  ASSERT_NO_FATAL_FAILURE(pair.TakeRequest());
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
}

// rnr_retry_count 3: the sender fails after the fourth RNR NAK.
TEST_F(ConnectionTest, ASendWithoutAReceiveRunsOutOfRetriesByPolling) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RNR_RETRY_EXC_ERR));
}

TEST_F(ConnectionTest, AWaitThatCannotEndIsToldInsteadOfHanging) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.listener.channel, &event), -1);
  EXPECT_EQ(errno, EDEADLK);
}

// The test inspects the state between a REQ and its REP.
TEST_F(ConnectionTest, ABarrierHoldsTheReply) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  rdmaemu::Fault gate("at = \"cm.rep\", hold = true");
  ASSERT_EQ(pair.Connect(), 0);
  ASSERT_NO_FATAL_FAILURE(pair.Accept());
  EXPECT_EQ(gate.fired(), 1u);
  const auto before = host.now();
  host.RunUntilIdle();
  EXPECT_EQ(host.now(), before) << "time stands while this program is awaited";
  gate.Release();
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
}

TEST_F(ConnectionTest, ADeviceThatIsRemovedTakesItsIdsAlong) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(rdmaemu_device_remove("rxe0"), 0) << rdmaemu_last_error();
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_DEVICE_REMOVAL, 0));
  ASSERT_EQ(rdmaemu_device_add("rxe0", nullptr), 0) << rdmaemu_last_error();
}

}  // namespace
}  // namespace rdmaemu_test
