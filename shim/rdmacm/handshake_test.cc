// Tests how fetching an event changes the id's QP.
#include <gtest/gtest.h>

#include <algorithm>

#include "shim/rdmacm/announcement.h"
#include "shim/rdmacm/fake_host.h"

namespace {

std::vector<ibv_qp_state> g_transitions;
ibv_qp_state g_refused = IBV_QPS_UNKNOWN;

}  // namespace

// Replace libibverbs' functions.
extern "C" int ibv_query_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
extern "C" int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attributes, int) {
  g_transitions.push_back(attributes->qp_state);
  using rdmaemu::rdmacm::testing::FakeHost;
  FakeHost::Get().made.push_back(FakeHost::Transition(attributes->qp_state));
  return attributes->qp_state == g_refused ? EINVAL : 0;
}

namespace rdmaemu::rdmacm {
namespace {

class Handshake : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.Reset();
    g_transitions.clear();
    g_refused = IBV_QPS_UNKNOWN;
    channel_ = rdma_create_event_channel();
    ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0);
    id_->qp = &qp_;
    host_.commands.clear();
  }
  void TearDown() override {
    id_->qp = nullptr;
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    rdma_destroy_event_channel(channel_);
  }
  void Push(uint32_t event, int status = 0) {
    rdma_ucm_event_resp response = {};
    response.uid = host_.last_uid;
    response.event = event;
    response.status = static_cast<uint32_t>(status);
    host_.Push(response);
  }
  // Returns the next event's type and status, or -1 and errno without an event.
  std::pair<int, int> Fetch() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return {-1, errno};
    const std::pair<int, int> result = {event->event, event->status};
    rdma_ack_cm_event(event);
    return result;
  }
  // Checks that the calls since the first announced one are the announced ones.
  void ExpectTheAnnouncedCalls(uint32_t first_op, size_t count) {
    EXPECT_EQ(host_.announced_first, first_op);
    EXPECT_EQ(host_.announced.size(), count);
    const auto first = std::ranges::find(host_.made, first_op, &testing::FakeHost::Call::op);
    ASSERT_NE(first, host_.made.end());
    EXPECT_TRUE(
        std::equal(first + 1, host_.made.end(), host_.announced.begin(), host_.announced.end()));
  }
  // Gives the id a device, and the depths of a connection.
  void AddDevice() {
    device_.users = 2;  // the table does not own it
    device_.max_initiator_depth = device_.max_responder_resources = 8;
    Private(id_).device = &device_;
    id_->verbs = &context_;
  }
  bool Asked(uint32_t command) {
    return std::count(host_.commands.begin(), host_.commands.end(), command) != 0;
  }

  testing::FakeHost& host_ = testing::FakeHost::Get();
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_qp qp_ = {};
  ibv_context context_ = {};
  Device device_;
};

using Seen = std::pair<int, int>;

TEST_F(Handshake, AReplyTakesTheQpToRtsSendsTheRtuAndIsReportedAsEstablished) {
  Push(RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_ESTABLISHED, 0));
  EXPECT_EQ(g_transitions, (std::vector<ibv_qp_state>{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  EXPECT_TRUE(Asked(RDMA_USER_CM_CMD_ACCEPT));
}

constexpr auto kCommand = static_cast<uint32_t>(CallOp::kCmCommand);
constexpr uint32_t kInitQpAttr = kCommand + RDMA_USER_CM_CMD_INIT_QP_ATTR;

TEST_F(Handshake, TheCallsAfterAReplyAreTheAnnouncedOnes) {
  Push(RDMA_CM_EVENT_CONNECT_RESPONSE);
  Fetch();
  ExpectTheAnnouncedCalls(kInitQpAttr, 6);
}

TEST_F(Handshake, TheCallsOfAcceptAreTheAnnouncedOnes) {
  AddDevice();
  for (const uint8_t depth : {uint8_t{3}, uint8_t{RDMA_MAX_RESP_RES}}) {
    host_.made.clear();
    rdma_conn_param parameters = {};
    parameters.responder_resources = parameters.initiator_depth = depth;
    EXPECT_EQ(rdma_accept(id_, &parameters), 0);
    ExpectTheAnnouncedCalls(kInitQpAttr, 6);
  }
}

TEST_F(Handshake, AnAcceptWithTooMuchPrivateDataMovesTheQpAndSendsNoRep) {
  AddDevice();
  Private(id_).connect_length = 200;
  const char data[100] = {};
  rdma_conn_param parameters = {};
  parameters.private_data = data;
  parameters.private_data_len = sizeof(data);
  EXPECT_EQ(rdma_accept(id_, &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  ExpectTheAnnouncedCalls(kInitQpAttr, 5);
  EXPECT_FALSE(Asked(RDMA_USER_CM_CMD_ACCEPT));
}

TEST_F(Handshake, TheCallsOfDisconnectAreTheAnnouncedOnes) {
  AddDevice();
  EXPECT_EQ(rdma_disconnect(id_), 0);
  ExpectTheAnnouncedCalls(static_cast<uint32_t>(CallOp::kModifyQp), 1);
}

TEST_F(Handshake, AnEventIsAnnouncedWithItsQueriesUnlessTheChannelIsASynchronousIds) {
  constexpr uint32_t kGetEvent = kCommand + RDMA_USER_CM_CMD_GET_EVENT;
  Push(RDMA_CM_EVENT_ADDR_ERROR);
  Fetch();
  EXPECT_EQ(host_.announced_first, kGetEvent);
  EXPECT_EQ(host_.announced.size(), 3u);
  host_.Reset();
  Private(channel_).is_of_id = true;
  Push(RDMA_CM_EVENT_ADDR_ERROR);
  Fetch();
  EXPECT_TRUE(host_.announced.empty());
}

TEST_F(Handshake, AReplyOnAnIdWithoutQpIsTheCallersToAnswer) {
  id_->qp = nullptr;
  Push(RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_CONNECT_RESPONSE, 0));
  EXPECT_TRUE(g_transitions.empty());
  EXPECT_FALSE(Asked(RDMA_USER_CM_CMD_ACCEPT));
}

TEST_F(Handshake, AQpThatCannotFollowIsAConnectErrorThePeerIsRejectedAndNoLaterEndingIsReported) {
  g_refused = IBV_QPS_RTS;
  Push(RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_CONNECT_ERROR, -1));
  EXPECT_EQ(g_transitions.back(), IBV_QPS_ERR);
  EXPECT_TRUE(Asked(RDMA_USER_CM_CMD_REJECT));
  EXPECT_FALSE(Asked(RDMA_USER_CM_CMD_ACCEPT));
  Push(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(Fetch(), Seen(-1, EAGAIN));
}

TEST_F(Handshake, ARefusedRtuIsAConnectErrorToo) {
  host_.errors[RDMA_USER_CM_CMD_ACCEPT] = ENOTCONN;
  Push(RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_CONNECT_ERROR, -1));
  EXPECT_EQ(g_transitions.back(), IBV_QPS_ERR);
}

TEST_F(Handshake, ARejectionTakesTheQpToErrAndADisconnectionLeavesIt) {
  Push(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_DISCONNECTED, 0));
  EXPECT_TRUE(g_transitions.empty());
  Push(RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_REJECTED, 28));
  EXPECT_EQ(g_transitions, std::vector<ibv_qp_state>{IBV_QPS_ERR});
}

// The device was removed after the route was resolved, which is ROUTE_ERROR's only cause on RoCE.
TEST_F(Handshake, ARouteThatCannotBeReadIsARouteError) {
  host_.errors[RDMA_USER_CM_CMD_QUERY] = ENXIO;
  Push(RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_ROUTE_ERROR, -1));
}

TEST_F(Handshake, AnAddressWithoutADeviceIsAnAddressError) {
  Push(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(Fetch(), Seen(RDMA_CM_EVENT_ADDR_ERROR, -1));
}

}  // namespace
}  // namespace rdmaemu::rdmacm
