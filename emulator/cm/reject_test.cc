// Tests rejections and their reasons. Also tests what the peer gets when an id is destroyed or a
// program ends.
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

TEST_F(CmTest, NobodyListensIsReason8) {
  active = client.Resolved("10.0.0.2", 9);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  EXPECT_EQ(client.Expect(EventType::kRejected, 8).raw.param.conn.private_data_len, 148);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EXPECT_EQ(client.Resolve(active, "10.0.0.2", 9), EINVAL);
  EXPECT_EQ(client.Disconnect(active), 0);
}

TEST_F(CmTest, ARejectCarriesThePassiveSidesPrivateDataPaddedTo148Bytes) {
  Request();
  ASSERT_EQ(server.Reject(passive, "no"), 0);
  net.Settle();
  const TakenEvent event = client.Expect(EventType::kRejected, 28);
  EXPECT_EQ(event.raw.param.conn.private_data_len, 148);
  EXPECT_EQ(event.raw.param.conn.private_data[1], 'o');
  EXPECT_EQ(event.raw.param.conn.private_data[2], 0);
  EXPECT_EQ(server.Reject(passive), EINVAL);
  EXPECT_EQ(server.Accept(passive, 1, Program::Parameters(1)), EINVAL);
  EXPECT_EQ(server.QpAttr(passive, IBV_QPS_INIT).error().code, EINVAL);
  EXPECT_EQ(server.Disconnect(passive), 0);
  EndAll();
}

TEST_F(CmTest, PrivateDataHasItsLimits) {
  active = client.Resolved("10.0.0.2", 7000);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn, std::string(57, 'x'))), EINVAL);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, std::string(56, 'x'))), 0);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  EXPECT_EQ(server.Reject(passive, std::string(149, 'x')), EINVAL);
  // A failed accept rejects the peer's request.
  EXPECT_EQ(server.Accept(passive, 1, Program::Parameters(1, std::string(197, 'x'))), EINVAL);
  net.Settle();
  client.Expect(EventType::kRejected, 28);
}

TEST_F(CmTest, DestroyingARequestRejectsIt) {
  Request();
  ASSERT_EQ(server.Destroy(passive), 0);
  net.Settle();
  client.Expect(EventType::kRejected, 28);
  EndAll();
}

TEST_F(CmTest, DestroyingAListenerRejectsTheRequestsNobodyFetched) {
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  EXPECT_EQ(server_node.counters.value(server.channel.counter), 1u);
  ASSERT_EQ(server.Destroy(listener), 0);
  EXPECT_EQ(server_node.counters.value(server.channel.counter), 0u);
  net.Settle();
  client.Expect(EventType::kRejected, 28);
  server.ExpectNothing();
  EndAll();
}

TEST_F(CmTest, AClientThatGivesUpIsReason4AndTheRequestIsOfNoUse) {
  Request();
  ASSERT_EQ(client.Destroy(active), 0);
  net.Settle();
  server.ExpectNothing();  // not accepted: the id has no uid yet
  EXPECT_EQ(server.QpAttr(passive, IBV_QPS_INIT).error().code, EINVAL);
  EXPECT_EQ(server.Accept(passive, 1, Program::Parameters(1)), EINVAL);
  EndAll();
}

TEST_F(CmTest, ARejectAfterTheReplyIsReason28) {
  Request();
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  ASSERT_EQ(client.Reject(active, "NO"), 0);
  net.Settle();
  EXPECT_EQ(server.Expect(EventType::kRejected, 28).raw.param.conn.private_data[0], 'N');
  EndAll();
}

TEST_F(CmTest, ASecondConnectionOfALiveQpIsStale) {
  Establish();
  const uint32_t again = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(again, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  EXPECT_EQ(client.Expect(EventType::kRejected, 10).id, again);
  EXPECT_EQ(client.Expect(EventType::kDisconnected).id, active);  // the old connection ends, too
  EndAll();
}

TEST_F(CmTest, AQpMayConnectAgainWhenItsConnectionHasEnded) {
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  const uint32_t again = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(again, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  server.Expect(EventType::kConnectRequest);
}

TEST_F(CmTest, AFullBacklogIsSilentAndARepeatMaySucceed) {
  ASSERT_EQ(server.Destroy(listener), 0);
  server.Listener("10.0.0.2", 7000, 2);
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t id = client.Resolved("10.0.0.2", 7000);
    ASSERT_EQ(client.Connect(id, Program::Parameters(100 + i)), 0);
    net.Settle();
  }
  client.ExpectNothing();
  EXPECT_EQ(server_node.cm.statistics().dropped_backlog_full, 2u);
  server.Expect(EventType::kConnectRequest);
  server.Expect(EventType::kConnectRequest);
  server.ExpectNothing();
  net.Run(5s);
  server.Expect(EventType::kConnectRequest);
  server.Expect(EventType::kConnectRequest);
}

TEST_F(CmTest, BacklogZeroIsTheLargest) {
  for (uint32_t i = 0; i < 6; i++) {
    const uint32_t id = client.Resolved("10.0.0.2", 7000);
    ASSERT_EQ(client.Connect(id, Program::Parameters(100 + i)), 0);
  }
  net.Settle();
  for (int i = 0; i < 6; i++) server.Expect(EventType::kConnectRequest);
}

// A request with arbitrary contents, as a foreign peer may send it.
class StrangerTest : public CmTest {
 protected:
  StrangerTest() {
    req.local_comm_id = 5;
    req.local_ca_guid = 99;
    req.local_qpn = 200;
    req.service_id = 0x01060000 + 7000;
    req.path_mtu = IBV_MTU_1024;
    req.remote_cm_response_timeout = req.local_cm_response_timeout = 20;
    req.max_cm_retries = 15;
    req.primary.local_gid = *NetAddress::Parse("10.0.0.1");
    req.primary.remote_gid = *NetAddress::Parse("10.0.0.2");
    header.source_port = 1234;
    header.source = req.primary.local_gid;
    header.destination = req.primary.remote_gid;
  }
  // Returns the reason of the REJ that answers, 0 when the program gets an event, or -1 without an
  // answer and an event.
  int Answer() {
    if (with_header) wire::EmitRdmaCmHeader(header, req.private_data);
    int reason = -1;
    net.filter = [&](const wire::CmMessage& message) {
      if (const auto* rej = std::get_if<wire::CmRej>(&message.body)) reason = rej->reason;
      return Net::Fate{};
    };
    server_node.cm.Receive(net.now, {sender, *NetAddress::Parse("10.0.0.2")}, {7, 0, req});
    if (server.Take()) return 0;
    return reason;
  }
  wire::CmReq req;
  wire::RdmaCmHeader header;
  NetAddress sender = *NetAddress::Parse("10.0.0.1");
  bool with_header = true;
};

TEST_F(StrangerTest, AWholeRequestIsTaken) { EXPECT_EQ(Answer(), 0); }
TEST_F(StrangerTest, AServiceNobodyHasIs8) {
  req.service_id++;
  EXPECT_EQ(Answer(), 8);
}
TEST_F(StrangerTest, NoHeaderOfRdmaCmIs28) {
  with_header = false;
  EXPECT_EQ(Answer(), 28);
}
TEST_F(StrangerTest, AHeaderForAnotherDestinationIs28) {
  header.destination = *NetAddress::Parse("10.0.0.3");
  EXPECT_EQ(Answer(), 28);
}
TEST_F(StrangerTest, UcAtAnRcListenerIs28) {
  req.transport = wire::CmTransport::kUc;
  EXPECT_EQ(Answer(), 28);
}
TEST_F(StrangerTest, ASourceWithoutARouteIs28) {
  header.source = *NetAddress::Parse("203.0.113.1");
  EXPECT_EQ(Answer(), 28);
}
// cm_init_av_for_response: the host cannot send an answer.
TEST_F(StrangerTest, ASenderWithoutARouteIsNotAnswered) {
  sender = *NetAddress::Parse("203.0.113.1");
  EXPECT_EQ(Answer(), -1);
  EXPECT_EQ(server_node.cm.statistics().dropped_no_route, 1u);
}
TEST_F(StrangerTest, AZeroGidIs12) {
  req.primary.local_gid = {};
  EXPECT_EQ(Answer(), 12);
}
TEST_F(StrangerTest, AGidOfAnotherHostIs12) {
  req.primary.remote_gid = *NetAddress::Parse("10.0.0.3");
  EXPECT_EQ(Answer(), 12);
}
TEST_F(StrangerTest, AnotherPartitionIs12) {
  req.pkey = 0x1234;
  EXPECT_EQ(Answer(), 12);
}
TEST_F(StrangerTest, AnAlternatePathIs18) {
  req.alternate.local_lid = 1;
  EXPECT_EQ(Answer(), 18);
}
TEST_F(StrangerTest, AnotherQpnOfTheSameRequestIsSilence) {
  ASSERT_EQ(Answer(), 0);
  req.local_qpn++;
  EXPECT_EQ(Answer(), -1);
  EXPECT_EQ(net.sent["MRA"], 1);  // the application holds the request
}

// ---- programs that end

TEST_F(CmTest, AServerThatEndsBeforeItsReplyIsRejected28) {
  Request();
  server_node.cm.GroupGone(net.now, server.group);
  net.Settle();
  client.Expect(EventType::kRejected, 28);
  EndAll();
}

TEST_F(CmTest, AServerThatEndsAfterTheReplyIsRejected28) {
  Request();
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  server_node.cm.GroupGone(net.now, server.group);
  net.Settle();
  client.Expect(EventType::kRejected, 28);
  EndAll();
}

TEST_F(CmTest, AServerThatEndsWhileEstablishedDisconnects) {
  Establish();
  server_node.cm.GroupGone(net.now, server.group);
  EXPECT_EQ(server_node.cm.ids(), 0u);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(1s);
  client.Expect(EventType::kTimewaitExit);
  EXPECT_EQ(server_node.cm.connections(), 0u);
  EndAll();
}

TEST_F(CmTest, ThePeerOfAnEndedProgramLearnsItThoughTheFirstDreqIsLost) {
  Establish();
  Lose("DREQ");
  client_node.cm.GroupGone(net.now, client.group);
  net.Run(5s);
  server.Expect(EventType::kDisconnected);
  EndAll();
}

TEST_F(CmTest, ConnectionsOfTwoEndedProgramsAnswerEachOther) {
  Establish();
  client_node.cm.GroupGone(net.now, client.group);
  server_node.cm.GroupGone(net.now, server.group);
  net.Run(2s);
  EXPECT_EQ(client_node.cm.connections(), 0u);
  EXPECT_EQ(server_node.cm.connections(), 0u);
}

TEST_F(CmTest, AnEndedProgramsDreqIsGivenUpInTheEnd) {
  Establish();
  Lose("DREQ", 1000);
  client_node.cm.GroupGone(net.now, client.group);
  EndAll();
  EXPECT_EQ(net.sent["DREQ"], 32);
}

TEST_F(StrangerTest, AskingForHoursBetweenRepeatsDoesNotKeepAnEndedProgramsConnection) {
  if (with_header) wire::EmitRdmaCmHeader(header, req.private_data);
  req.local_cm_response_timeout = 31;
  const CmRoute route{header.source, header.destination};
  server_node.cm.Receive(net.now, route, {7, 0, req});
  passive = server.Expect(EventType::kConnectRequest).id;
  wire::CmRtu rtu;
  net.filter = [&rtu](const wire::CmMessage& message) {
    if (const auto* rep = std::get_if<wire::CmRep>(&message.body)) {
      rtu.remote_comm_id = rep->local_comm_id;
      rtu.local_comm_id = rep->remote_comm_id;
    }
    return Net::Fate{.lost = true};
  };
  Accept();
  server_node.cm.Receive(net.now, route, {7, 0, rtu});
  server.Expect(EventType::kEstablished);
  server_node.cm.GroupGone(net.now, server.group);
  net.Run(2min);
  EXPECT_EQ(net.sent["DREQ"], 16);
  EXPECT_EQ(server_node.cm.connections(), 0u);
}

}  // namespace
}  // namespace rdmaemu::cm
