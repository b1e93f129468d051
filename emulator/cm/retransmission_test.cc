// Tests which messages are retransmitted, how often and for how long (kernel.md, Timers). The
// timers depend on the profile and on the peer. An MRA extends them.
#include "emulator/abi/command_structs.h"
#include "emulator/cm/wire_peer_for_test.h"

namespace rdmaemu::cm {
namespace {

using wire::CmMessageType;

std::vector<int64_t> Every(int64_t interval_ms, int sends) {
  std::vector<int64_t> times;
  for (int i = 0; i < sends; i++) times.push_back(i * interval_ms);
  return times;
}

class Retransmission : public WireTest {
 protected:
  void EstablishFromPeer(const wire::CmReq& req) {
    ToServer(req);
    passive = server.Expect(EventType::kConnectRequest).id;
    ReplyToPeer();
    ToServer(PeersRtu());
    server.Expect(EventType::kEstablished);
  }
};

TEST_F(Retransmission, ARequestGoesSixteenTimesEveryTwoLifetimesAndAResponseTime) {
  RequestToPeer();
  net.Run(2h);
  EXPECT_EQ(TimesOf("REQ"), Every(2 * 256 + 4096, 16));
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  // All sixteen have one transaction id, so that the peer handles them as one request.
  for (const Sent& one : said) {
    EXPECT_EQ(one.message.transaction_id, said[0].message.transaction_id);
    EXPECT_EQ(std::get<wire::CmReq>(one.message.body).local_comm_id, our_id);
  }
  EndAll();
}

// RDMA_OPTION_ID_ACK_TIMEOUT t sets the path's lifetime to t - 1 (rdma_set_option(3)).
TEST_F(Retransmission, TheAckTimeoutOptionIsTheLifetimeOfTheRequest) {
  active = client.Create();
  ASSERT_EQ(client.Resolve(active, "10.0.0.9", 7000), 0);
  client.Expect(EventType::kAddrResolved);
  CmSetOption option = {};
  option.command.id = active;
  option.command.level = RDMA_OPTION_ID;
  option.command.optname = RDMA_OPTION_ID_ACK_TIMEOUT;
  option.command.optlen = 1;
  option.value[0] = 20;
  ASSERT_EQ(client.Errno(RDMA_USER_CM_CMD_SET_OPTION, option), 0);
  ASSERT_EQ(client.Route(active), 0);
  client.Expect(EventType::kRouteResolved);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(2h);
  EXPECT_EQ(TimesOf("REQ"), Every(2 * 2048 + 4096, 16));
  EXPECT_EQ(Last<wire::CmReq>().primary.local_ack_timeout, 20);
}

TEST_F(Retransmission, AReplyGoesByWhatTheRequestSaysOfItsSender) {
  wire::CmReq req = PeersReq();
  req.local_cm_response_timeout = 16;
  req.max_cm_retries = 3;
  ToServer(req);
  passive = server.Expect(EventType::kConnectRequest).id;
  ReplyToPeer();
  net.Run(256ms * 4 - 1ms);
  server.ExpectNothing();
  net.Run(1h);
  EXPECT_EQ(TimesOf("REP"), Every(256, 4));
  server.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(server.Disconnect(passive), 0);
  server.ExpectNothing();
  EndAll();
}

TEST_F(Retransmission, TheActiveSidesDisconnectGoesByItsPath) {
  EstablishToPeer();
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(2h);
  EXPECT_EQ(TimesOf("DREQ"), Every(2 * 256 + 4096, 16));
  client.Expect(EventType::kDisconnected, -ETIMEDOUT);
  client.Expect(EventType::kTimewaitExit);
  client.ExpectNothing();
  EndAll();
}

TEST_F(Retransmission, ThePassiveSidesDisconnectGoesByTheRequest) {
  wire::CmReq req = PeersReq();
  req.local_cm_response_timeout = 17;
  req.max_cm_retries = 5;
  EstablishFromPeer(req);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(2h);
  EXPECT_EQ(TimesOf("DREQ"), Every(512, 6));
  server.Expect(EventType::kDisconnected, -ETIMEDOUT);
  // All DREQs have one transaction id, which differs from the handshake's. A peer that still has
  // the handshake's id would drop a DREQ with this id.
  for (const Sent& one : said) {
    if (one.name != "DREQ") continue;
    EXPECT_NE(one.message.transaction_id, kTransaction);
    EXPECT_EQ(one.message.transaction_id, said.back().message.transaction_id);
  }
  EndAll();
}

TEST_F(Retransmission, ANameRequestGoesSixteenTimesEveryResponseTime) {
  active = client.Resolved("10.0.0.9", 7000, RDMA_PS_UDP);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(2h);
  EXPECT_EQ(TimesOf("SIDR_REQ"), Every(4096, 16));
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EndAll();
}

// ---- messages that are sent once

TEST_F(Retransmission, AnswersAreNotRepeated) {
  EstablishToPeer();
  net.Run(1h);
  EXPECT_EQ(TimesOf("RTU").size(), 1u);
  ToClient(PeersDreq(kClientQpn));
  client.Expect(EventType::kDisconnected);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Run(1h);
  EXPECT_EQ(TimesOf("DREP").size(), 1u);
}

// ---- MRA

TEST_F(Retransmission, AnMraStretchesTheRequestsRepeatsToItsServiceTimeAndALifetime) {
  RequestToPeer();
  net.Run(4608ms + 1s);
  ToClient(PeersMra(CmMessageType::kReq, 22));
  net.Run(24h);
  std::vector<int64_t> expected = {0, 4608};
  for (int i = 0; i < 14; i++) expected.push_back(4608 + 1000 + (i + 1) * (16384 + 512));
  EXPECT_EQ(TimesOf("REQ"), expected);  // sixteen, as without the MRA
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EndAll();
}

TEST_F(Retransmission, ASecondMraChangesNothing) {
  RequestToPeer();
  ToClient(PeersMra(CmMessageType::kReq, 22));
  net.Run(10s);
  ToClient(PeersMra(CmMessageType::kReq, 30));
  net.Run(24h);
  EXPECT_EQ(TimesOf("REQ"), Every(16384 + 512, 16));
}

TEST_F(Retransmission, AnMraForTheOtherMessageChangesNothing) {
  RequestToPeer();
  ToClient(PeersMra(CmMessageType::kRep, 22));
  ToClient(PeersMra(CmMessageType::kOther, 22));
  net.Run(2h);
  EXPECT_EQ(TimesOf("REQ"), Every(4608, 16));
}

TEST_F(Retransmission, AnMraStretchesTheReplysRepeats) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersMra(CmMessageType::kRep, 22));
  net.Run(24h);
  EXPECT_EQ(TimesOf("REP"), Every(16384 + 512, 16));
  server.Expect(EventType::kUnreachable, -ETIMEDOUT);
}

TEST_F(Retransmission, AReplyAfterAnMraStillConnects) {
  RequestToPeer();
  ToClient(PeersMra(CmMessageType::kReq, 24));
  net.Run(60s);
  ToClient(PeersRep());
  client.Expect(EventType::kConnectResponse);
  EXPECT_EQ(client.Establish(active), 0);
  EXPECT_EQ(TimesOf("REQ").size(), 1u);
}

// An MRA answers each repeat of a message that the application has not answered. No other message
// is sent.
TEST_F(Retransmission, EachRepeatOfAHeldRequestIsAnsweredByAnMra) {
  RequestFromPeer();
  EXPECT_TRUE(TakeSaid().empty());
  for (int i = 0; i < 3; i++) {
    net.Run(10s);
    ToServer(PeersReq());
    EXPECT_EQ(TakeSaid(), std::vector<std::string>{"MRA"});
    const wire::CmMra& mra = Last<wire::CmMra>();
    EXPECT_EQ(mra.message, CmMessageType::kReq);
    EXPECT_EQ(mra.service_timeout, 24);
    EXPECT_EQ(mra.remote_comm_id, kPeersId);
    EXPECT_NE(mra.local_comm_id, 0u);
  }
  server.ExpectNothing();
  Accept();
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"REP"});
}

TEST_F(Retransmission, EachRepeatOfAHeldReplyIsAnsweredByAnMra) {
  RequestToPeer();
  ToClient(PeersRep());
  client.Expect(EventType::kConnectResponse);
  TakeSaid();
  ToClient(PeersRep());
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"MRA"});
  EXPECT_EQ(Last<wire::CmMra>().message, CmMessageType::kRep);
  EXPECT_EQ(Last<wire::CmMra>().service_timeout, 24);
  client.ExpectNothing();
  EXPECT_EQ(client.Establish(active), 0);
}

// After a lost RTU the peer retransmits the REP. The same RTU answers each REP.
TEST_F(Retransmission, ARepeatedReplyGetsItsRtuAgain) {
  EstablishToPeer();
  for (int i = 0; i < 3; i++) ToClient(PeersRep());
  EXPECT_EQ(TimesOf("RTU").size(), 4u);
  EXPECT_EQ(Last<wire::CmRtu>().remote_comm_id, kPeersId);
  EXPECT_EQ(Last<wire::CmRtu>().local_comm_id, our_id);
  client.ExpectNothing();
}

// Like rdma_rxe, the emulator does not treat data as an RTU. Only the program can do so, with
// rdma_notify.
TEST_F(Retransmission, WithoutItsRtuAReplyIsRepeatedUntilItComes) {
  RequestFromPeer();
  ReplyToPeer();
  net.Run(20s);
  server.ExpectNothing();
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
  net.Run(2h);
  EXPECT_EQ(TimesOf("REP"), Every(4096, 5));
  server.ExpectNothing();
}

// ---- timewait

class Timewait : public Retransmission {
 protected:
  // Checks how long the client's timewait lasts when the peer has this ack delay.
  void ExpectClientsTimewait(uint8_t peers_ack_delay, Duration length) {
    RequestToPeer();
    wire::CmRep rep = PeersRep();
    rep.target_ack_delay = peers_ack_delay;
    ToClient(rep);
    client.Expect(EventType::kConnectResponse);
    ASSERT_EQ(client.Establish(active), 0);
    ASSERT_EQ(client.Disconnect(active), 0);
    ToClient(PeersDrep());
    client.Expect(EventType::kDisconnected);
    net.Run(length - 1ms);
    client.ExpectNothing();
    net.Run(1ms);
    client.Expect(EventType::kTimewaitExit);
    EndAll();
  }
  void ExpectServersTimewait(uint8_t peers_ack_timeout, Duration length) {
    wire::CmReq req = PeersReq();
    req.primary.local_ack_timeout = peers_ack_timeout;
    EstablishFromPeer(req);
    ToServer(PeersDreq(kServerQpn));
    server.Expect(EventType::kDisconnected);
    ASSERT_EQ(server.Disconnect(passive), 0);
    net.Run(length - 1ms);
    server.ExpectNothing();
    net.Run(1ms);
    server.Expect(EventType::kTimewaitExit);
    EndAll();
  }
};

TEST_F(Timewait, LastsTheActiveSidesAckTimeout) { ExpectClientsTimewait(15, 512ms); }
TEST_F(Timewait, OfRxeLastsTwoSeconds) {
  client_node.profile.cm.packet_lifetime = 18;
  ExpectClientsTimewait(15, 2048ms);
}
TEST_F(Timewait, FollowsALongAckDelayOfThePeer) { ExpectClientsTimewait(20, 4096ms); }
// cm_ack_timeout is applied to the lifetime once, with the peer's delay. Only the REQ contains the
// sender's own delay.
TEST_F(Timewait, OfAShortLifetimeTakesTheAckDelayOnce) {
  client_node.profile.cm.packet_lifetime = 14;
  ExpectClientsTimewait(15, 256ms);
}
TEST_F(Timewait, LastsThePassiveSideWhatTheRequestSays) { ExpectServersTimewait(17, 512ms); }
TEST_F(Timewait, OfThePassiveSideAddsNoAckDelayOfItsOwn) { ExpectServersTimewait(16, 256ms); }
TEST_F(Timewait, OfARequestWithoutATimeoutIsTheShortest) { ExpectServersTimewait(0, 1ms); }
TEST_F(Timewait, HasTheProfilesFloor) {
  client_node.profile.cm.timewait_floor = 3s;
  ExpectClientsTimewait(15, 3s);
}

TEST_F(Timewait, KeepsTheCommunicationIdThoughItsIdIsDestroyed) {
  EstablishToPeer();
  ASSERT_EQ(client.Disconnect(active), 0);
  ToClient(PeersDrep());
  client.Expect(EventType::kDisconnected);
  ASSERT_EQ(client.Destroy(active), 0);
  EXPECT_EQ(client_node.cm.connections(), 1u);
  net.Run(512ms);
  EXPECT_EQ(client_node.cm.connections(), 0u);
  client.ExpectNothing();  // the id that would get an event was destroyed
}

TEST_F(Timewait, GivesTheIdNoSecondLife) {
  EstablishToPeer();
  ASSERT_EQ(client.Disconnect(active), 0);
  ToClient(PeersDrep());
  client.Expect(EventType::kDisconnected);
  net.Run(1h);
  client.Expect(EventType::kTimewaitExit);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EXPECT_EQ(client.Resolve(active, "10.0.0.9", 7000), EINVAL);
  EXPECT_EQ(client.Establish(active), EINVAL);
  EXPECT_EQ(client.Disconnect(active), 0);
  EXPECT_EQ(client.Destroy(active), 0);
}

}  // namespace
}  // namespace rdmaemu::cm
