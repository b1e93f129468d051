// A connection between two hosts from REQ to timewait, with messages lost at every step.
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

std::string Data(const uint8_t* bytes) { return reinterpret_cast<const char*>(bytes); }

TEST_F(CmTest, ARequestReachesTheListenerWithAllItsFields) {
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, "hello")), 0);
  net.Settle();
  const TakenEvent event = server.Expect(EventType::kConnectRequest);
  const rdma_ucm_conn_param& conn = event.raw.param.conn;
  EXPECT_EQ(event.uid, 101u);  // the listener's
  EXPECT_NE(event.id, listener);
  EXPECT_EQ(conn.private_data_len, 56);  // the full field for any length
  EXPECT_EQ(Data(conn.private_data), "hello");
  EXPECT_TRUE(std::all_of(conn.private_data + 5, conn.private_data + 56,
                          [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(conn.responder_resources, 5);  // swapped
  EXPECT_EQ(conn.initiator_depth, 3);
  EXPECT_EQ(conn.retry_count, 6);
  EXPECT_EQ(conn.rnr_retry_count, 7);
  EXPECT_EQ(conn.qp_num, kClientQpn);
}

TEST_F(CmTest, TheReplyReachesTheClientWithAllItsFields) {
  Request();
  Accept();
  net.Settle();
  const TakenEvent event = client.Expect(EventType::kConnectResponse);
  const rdma_ucm_conn_param& conn = event.raw.param.conn;
  EXPECT_EQ(event.id, active);
  EXPECT_EQ(conn.private_data_len, 196);
  EXPECT_EQ(Data(conn.private_data), "welcome");
  EXPECT_EQ(conn.responder_resources, 5);
  EXPECT_EQ(conn.initiator_depth, 3);
  EXPECT_EQ(conn.retry_count, 0);
  EXPECT_EQ(conn.rnr_retry_count, 7);
  EXPECT_EQ(conn.qp_num, kServerQpn);
}

TEST_F(CmTest, ThePassiveSidesEstablishedIsAllZero) {
  Request();
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  ASSERT_EQ(client.Establish(active), 0);
  net.Settle();
  const TakenEvent event = server.Expect(EventType::kEstablished);
  EXPECT_EQ(event.uid, kServerUid);
  EXPECT_EQ(event.id, passive);
  EXPECT_EQ(event.raw.param.conn.private_data_len, 0);
  EXPECT_EQ(event.raw.param.conn.qp_num, 0u);
  EXPECT_EQ(client.Establish(active), EINVAL);
}

TEST_F(CmTest, QpAttributesAreTheKernelsInEveryState) {
  active = client.Resolved("10.0.0.2", 7000);
  auto init = client.QpAttr(active, IBV_QPS_RTR);
  ASSERT_TRUE(init);
  EXPECT_EQ(init->qp_attr_mask, 0x39u);  // INIT's attributes only, before there is a connection
  EXPECT_EQ(init->qp_access_flags, 0u);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  EXPECT_EQ(client.QpAttr(active, IBV_QPS_RTR).error().code, EINVAL);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;

  init = server.QpAttr(passive, IBV_QPS_INIT);
  EXPECT_EQ(init->qp_attr_mask, 0x39u);
  EXPECT_EQ(init->qp_access_flags, 0xeu);
  const auto rtr = server.QpAttr(passive, IBV_QPS_RTR), rts = server.QpAttr(passive, IBV_QPS_RTS);
  EXPECT_EQ(rtr->qp_attr_mask, 0x129181u);
  EXPECT_EQ(rtr->path_mtu, IBV_MTU_1024);
  EXPECT_EQ(rtr->dest_qp_num, kClientQpn);
  EXPECT_EQ(rtr->max_dest_rd_atomic, 5);
  EXPECT_EQ(rtr->min_rnr_timer, 0);
  EXPECT_EQ(rtr->ah_attr.is_global, 1);
  EXPECT_EQ(rtr->ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(rtr->ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(std::memcmp(rtr->ah_attr.grh.dgid, NetAddress::Parse("10.0.0.1")->bytes.data(), 16), 0);
  EXPECT_EQ(rts->qp_attr_mask, 0x12e01u);
  EXPECT_EQ(rts->timeout, 17);  // lifetime 16, ack delay 15
  EXPECT_EQ(rts->retry_cnt, 6);
  EXPECT_EQ(rts->rnr_retry, 7);
  EXPECT_EQ(rts->max_rd_atomic, 3);
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  const auto theirs = client.QpAttr(active, IBV_QPS_RTR);
  EXPECT_EQ(theirs->dest_qp_num, kServerQpn);
  // Each end's receive PSN equals the other end's send PSN.
  EXPECT_EQ(theirs->rq_psn, rts->sq_psn);
  EXPECT_EQ(client.QpAttr(active, IBV_QPS_RTS)->sq_psn, rtr->rq_psn);
}

TEST_F(CmTest, TheOneWhoDisconnectsHearsOfItWhenThePeerDoesToo) {
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);
  client.ExpectNothing();
  ASSERT_EQ(client.Disconnect(active), 0);  // no effect
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(50ms);
  client.Expect(EventType::kDisconnected);
  client.ExpectNothing();
  net.Run(512ms);  // timewait of ack timeout 17
  client.Expect(EventType::kTimewaitExit);
  server.Expect(EventType::kTimewaitExit);
  EXPECT_EQ(client.Disconnect(active), 0);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EndAll();
}

TEST_F(CmTest, BothMayDisconnectAtOnce) {
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  server.Expect(EventType::kDisconnected);
  EndAll();
}

TEST_F(CmTest, ADisconnectThatNobodyAnswersEndsInTimedOut) {
  Establish();
  Lose("DREQ", 1000);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(16 * 4608ms - 10ms);
  client.ExpectNothing();
  net.Run(20ms);
  client.Expect(EventType::kDisconnected, -ETIMEDOUT);
  EXPECT_EQ(net.sent["DREQ"], 16);
}

class Lost : public CmTest, public testing::WithParamInterface<const char*> {};

TEST_P(Lost, OneMessageOfAKindIsMadeUpForByItsRepeat) {
  Lose(GetParam());
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(10s);
  passive = server.Expect(EventType::kConnectRequest).id;
  Accept();
  net.Run(10s);
  client.Expect(EventType::kConnectResponse);
  ASSERT_EQ(client.Establish(active), 0);
  net.Run(100s);  // an MRA may have slowed the REP down
  server.Expect(EventType::kEstablished);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(10s);
  server.Expect(EventType::kDisconnected);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(10s);
  client.Expect(EventType::kDisconnected);
  client.Expect(EventType::kTimewaitExit);
  server.Expect(EventType::kTimewaitExit);
  client.ExpectNothing();
  server.ExpectNothing();
  EndAll();
}
INSTANTIATE_TEST_SUITE_P(EachKind, Lost, testing::Values("REQ", "REP", "RTU", "DREQ"));

TEST_F(CmTest, ALostDrepIsMadeUpForOnceThePeersIdHasGone) {
  Establish();
  Lose("DREP", 1);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);
  ASSERT_EQ(server.Destroy(passive), 0);
  net.Run(10s);
  client.Expect(EventType::kDisconnected);
  EXPECT_EQ(net.sent["DREP"], 2);
}

TEST_F(CmTest, ALostDrepOfAnIdThatStaysIsATimeOut) {
  Establish();
  Lose("DREP", 1);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(100s);
  client.Expect(EventType::kDisconnected, -ETIMEDOUT);
}

TEST_F(CmTest, EveryMessageTwiceChangesNothing) {
  net.filter = [](const wire::CmMessage&) { return Net::Fate{.copies = 2}; };
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(10s);
  client.Expect(EventType::kDisconnected);
  client.Expect(EventType::kTimewaitExit);
  client.ExpectNothing();
  server.Expect(EventType::kTimewaitExit);
  server.ExpectNothing();
  EXPECT_GT(server_node.cm.statistics().duplicates, 0u);
}

TEST_F(CmTest, SilenceIsUnreachableAfterSixteenRequests) {
  Lose("REQ", 1000);
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(16 * 4608ms - 1ms);
  client.ExpectNothing();
  net.Run(1ms);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(net.sent["REQ"], 16);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EndAll();
}

// rxe's packet lifetime is 18. Measured: a REQ times out after 99 s, and a DREQ after 102 s.
TEST_F(CmTest, WithThePacketLifetimeOfRxeSilenceLasts98Seconds) {
  client_node.profile.cm.packet_lifetime = 18;
  Lose("REQ", 1000);
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(98304ms - 1ms);
  client.ExpectNothing();
  net.Run(1ms);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(net.sent["REQ"], 16);
  EndAll();
}

TEST_F(CmTest, WithThePacketLifetimeOfRxeADisconnectWaits98Seconds) {
  client_node.profile.cm.packet_lifetime = 18;
  Establish();
  Lose("DREQ", 1000);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(98304ms - 1ms);
  client.ExpectNothing();
  net.Run(1ms);
  client.Expect(EventType::kDisconnected, -ETIMEDOUT);
  EXPECT_EQ(net.sent["DREQ"], 16);
}

TEST_F(CmTest, ARequestThatTheServerHoldsIsNotGivenUp) {
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(140s);
  client.ExpectNothing();
  EXPECT_GE(net.sent["MRA"], 1);
  passive = server.Expect(EventType::kConnectRequest).id;
  server.ExpectNothing();
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
}

TEST_F(CmTest, AReplyThatTheClientNeverTakesUpTimesOutOnTheServer) {
  Request();
  Lose("REP", 1000);
  Accept();
  net.Run(16 * 4096ms + 10ms);
  server.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(net.sent["REP"], 16);
}

TEST_F(CmTest, CommEstStandsInForTheRtu) {
  Request();
  Accept();
  rdma_ucm_notify notify{passive, IBV_EVENT_COMM_EST};
  EXPECT_EQ(server.Errno(RDMA_USER_CM_CMD_NOTIFY, notify), 0);
  server.Expect(EventType::kEstablished);
  EXPECT_EQ(server.Errno(RDMA_USER_CM_CMD_NOTIFY, notify), EISCONN);
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  ASSERT_EQ(client.Establish(active), 0);
  net.Settle();
  server.ExpectNothing();
  notify.event = IBV_EVENT_PATH_MIG;  // cm_migrate
  EXPECT_EQ(server.Errno(RDMA_USER_CM_CMD_NOTIFY, notify), 0);
  notify.event = IBV_EVENT_SQ_DRAINED;
  EXPECT_EQ(server.Errno(RDMA_USER_CM_CMD_NOTIFY, notify), EINVAL);
}

TEST_F(CmTest, OneHostConnectsToItself) {
  Program local(server_node, 3);
  const uint32_t id = local.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(local.Connect(id, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  Accept();
  net.Settle();
  local.Expect(EventType::kConnectResponse);
  ASSERT_EQ(local.Establish(id), 0);
  net.Settle();
  server.Expect(EventType::kEstablished);
}

TEST_F(CmTest, AMemberOfTheTraceNamesMessagesAndEvents) {
  client_node.trace.keep = true;
  Request();
  const auto& records = client_node.trace.records;
  const auto has = [&](std::string_view kind, std::string_view what) {
    return std::any_of(records.begin(), records.end(), [&](const trace::Record& record) {
      return record.kind == kind && record.what == what &&
             record.object == "id " + std::to_string(active);
    });
  };
  EXPECT_TRUE(has("cm.send", "REQ"));
  EXPECT_TRUE(has("cm.event", "RDMA_CM_EVENT_ROUTE_RESOLVED"));
}

// ---- UD

class UdTest : public CmTest {
 protected:
  UdTest() {
    server.Listener("10.0.0.2", 7000, 0, RDMA_PS_UDP);
    active = client.Resolved("10.0.0.2", 7000, RDMA_PS_UDP);
  }
  void RequestUd() {
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, "hello")), 0);
    net.Settle();
    const TakenEvent event = server.Expect(EventType::kConnectRequest);
    passive = event.id;
    EXPECT_EQ(event.raw.param.ud.private_data_len, 180);
    EXPECT_EQ(Data(event.raw.param.ud.private_data), "hello");
    EXPECT_EQ(event.raw.param.ud.qp_num, 0u);
  }
};

TEST_F(UdTest, ResolvesToAQpAnAddressAndAKey) {
  EXPECT_EQ(client.QpAttr(active, IBV_QPS_INIT)->qp_attr_mask, 0x71u);
  RequestUd();
  ASSERT_EQ(server.Accept(passive, kServerUid, Program::Parameters(kServerQpn, "welcome")), 0);
  net.Settle();
  const TakenEvent event = client.Expect(EventType::kEstablished);
  const rdma_ucm_ud_param& ud = event.raw.param.ud;
  EXPECT_EQ(ud.private_data_len, 136);
  EXPECT_EQ(Data(ud.private_data), "welcome");
  EXPECT_EQ(ud.qp_num, kServerQpn);
  EXPECT_EQ(ud.qkey, 0x01234567u);
  EXPECT_EQ(ud.ah_attr.is_global, 1);
  EXPECT_EQ(ud.ah_attr.grh.hop_limit, 64);
  server.ExpectNothing();
  EXPECT_EQ(client.Disconnect(active), 0);
  EXPECT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.ExpectNothing();
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EndAll();
}

TEST_F(UdTest, ARejectIsUnreachableTwoWithItsData) {
  RequestUd();
  ASSERT_EQ(server.Reject(passive, "no"), 0);
  net.Settle();
  EXPECT_EQ(Data(client.Expect(EventType::kUnreachable, 2).raw.param.ud.private_data), "no");
}

TEST_F(UdTest, NoListenerIsUnreachableOne) {
  const uint32_t id = client.Resolved("10.0.0.2", 9, RDMA_PS_UDP);
  ASSERT_EQ(client.Connect(id, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  client.Expect(EventType::kUnreachable, 1);
}

TEST_F(UdTest, SilenceIsUnreachableAfterSixteenRequests) {
  Lose("SIDR_REQ", 1000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(16 * 4096ms - 1ms);
  client.ExpectNothing();
  net.Run(1ms);
  const TakenEvent event = client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(event.raw.param.ud.private_data_len, 0);
  EXPECT_EQ(net.sent["SIDR_REQ"], 16);
}

TEST_F(UdTest, ALostReplyIsAskedForAgain) {
  Lose("SIDR_REP");
  RequestUd();
  ASSERT_EQ(server.Accept(passive, kServerUid, Program::Parameters(kServerQpn)), 0);
  net.Run(10s);
  const uint32_t again = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(server.Accept(again, kServerUid + 1, Program::Parameters(kServerQpn)), 0);
  net.Settle();
  client.Expect(EventType::kEstablished);
  EndAll();
}

TEST_F(UdTest, PrivateDataHasItsLimits) {
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn, std::string(181, 'x'))), EINVAL);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, std::string(180, 'x'))), 0);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  EXPECT_EQ(server.Accept(passive, 1, Program::Parameters(1, std::string(137, 'x'))), EINVAL);
  net.Settle();
  client.Expect(EventType::kUnreachable, 2);
}

}  // namespace
}  // namespace rdmaemu::cm
