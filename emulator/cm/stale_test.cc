// Tests how messages are matched to connections. A REQ or REP may name a QP of an existing
// connection (IBTA 12.9.8.3.1) or an id in use. A REJ must be matched to its connection.
#include "emulator/cm/wire_peer_for_test.h"

namespace rdmaemu::cm {
namespace {

using wire::CmMessageType;

class Stale : public WireTest {
 protected:
  // A request of a peer that lost its state: the same QP with another communication id.
  wire::CmReq NewReqOfTheSameQp() {
    wire::CmReq req = PeersReq();
    req.local_comm_id = kPeersId + 1;
    return req;
  }
};

TEST_F(Stale, ARequestOfALiveConnectionsQpIsRefusedAndTheOldConnectionEnded) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
  TakeSaid();
  ToServer(NewReqOfTheSameQp(), kTransaction + 1);
  EXPECT_EQ(TakeSaid(), (std::vector<std::string>{"REJ", "DREQ"}));
  const wire::CmRej& rej = Last<wire::CmRej>();
  EXPECT_EQ(rej.reason, 10);
  EXPECT_EQ(rej.message, CmMessageType::kReq);
  EXPECT_EQ(rej.remote_comm_id, kPeersId + 1);
  EXPECT_EQ(rej.local_comm_id, 0u);
  EXPECT_EQ(Last<wire::CmDreq>().remote_comm_id, kPeersId);
  EXPECT_EQ(Last<wire::CmDreq>().remote_qpn, kPeersQpn);
  server.ExpectNothing();
  ToServer(PeersDrep());
  EXPECT_EQ(server.Expect(EventType::kDisconnected).uid, kServerUid);
  // The old connection is in timewait, and its QP may send a new request.
  ToServer(NewReqOfTheSameQp(), kTransaction + 2);
  server.Expect(EventType::kConnectRequest);
  EndAll();
}

// cm_match_req compares no source address. CA GUID and QPN identify the connection
// (docs/privacy.md).
TEST_F(Stale, TheRequestMayComeFromAnyAddress) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
  TakeSaid();
  const CmRoute from_elsewhere{*NetAddress::Parse("10.0.0.66"), *NetAddress::Parse("10.0.0.2")};
  server_node.cm.Receive(net.now, from_elsewhere, {kTransaction + 1, 0, NewReqOfTheSameQp()});
  EXPECT_EQ(TakeSaid(), (std::vector<std::string>{"REJ", "DREQ"}));
}

// The old connection is not disconnected, because ib_send_cm_dreq returns EINVAL for a connection
// that is not established.
TEST_F(Stale, ARequestOfAQpThatIsStillConnectingIsRefusedAlone) {
  RequestFromPeer();
  ReplyToPeer();
  TakeSaid();
  ToServer(NewReqOfTheSameQp());
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"REJ"});
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
}

TEST_F(Stale, TheQpIsFreeAgainOnceTimewaitBegins) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
  ToServer(PeersDreq(kServerQpn));
  server.Expect(EventType::kDisconnected);
  ToServer(NewReqOfTheSameQp());
  EXPECT_EQ(Last<wire::CmRej>().reason, 10);  // the DREP was not sent yet
  ASSERT_EQ(server.Disconnect(passive), 0);
  ToServer(NewReqOfTheSameQp());
  server.Expect(EventType::kConnectRequest);
}

TEST_F(Stale, ThoseWhoAreToldReason10WaitBeforeTheyForget) {
  RequestToPeer();
  wire::CmRej rej = PeersRej(10, CmMessageType::kReq);
  rej.local_comm_id = 0;
  ToClient(rej);
  client.Expect(EventType::kRejected, 10);
  EXPECT_EQ(client_node.cm.connections(), 1u);
  net.Run(1h);
  client.ExpectNothing();  // a connection that was never established has no TIMEWAIT_EXIT
  EXPECT_EQ(client.Destroy(active), 0);
  EXPECT_EQ(client_node.cm.connections(), 0u);
}

// The peer has used one of its QPs for two connections.
TEST_F(Stale, AReplyOfALiveConnectionsQpIsRefusedAndTheOldConnectionEnded) {
  EstablishToPeer();
  const uint32_t old = active, old_id = our_id;
  active = client.Resolved("10.0.0.9", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn + 1)), 0);
  our_id = Last<wire::CmReq>().local_comm_id;
  TakeSaid();
  wire::CmRep rep = PeersRep();
  rep.local_comm_id = kPeersId + 1;
  ToClient(rep);
  EXPECT_EQ(TakeSaid(), (std::vector<std::string>{"REJ", "DREQ"}));
  const wire::CmRej& rej = Last<wire::CmRej>();
  EXPECT_EQ(rej.reason, 10);
  EXPECT_EQ(rej.message, CmMessageType::kRep);
  // The peer finds its refused connection by both ids.
  EXPECT_EQ(rej.remote_comm_id, kPeersId + 1);
  EXPECT_EQ(rej.local_comm_id, our_id);
  EXPECT_EQ(Last<wire::CmDreq>().local_comm_id, old_id);
  client.ExpectNothing();
  // The id still retransmits its REQ, and accepts a REP with another QP.
  net.Run(5s);
  EXPECT_EQ(Last<wire::CmReq>().local_comm_id, our_id);
  rep.local_qpn++;
  rep.local_comm_id++;
  ToClient(rep);
  EXPECT_EQ(client.Expect(EventType::kConnectResponse).id, active);
  ToClient({wire::CmDrep{kPeersId, old_id, {}}});
  EXPECT_EQ(client.Expect(EventType::kDisconnected).id, old);
  EndAll();
}

TEST_F(Stale, TheRefusedReplysSenderIsToldSo) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersRej(10, CmMessageType::kRep));
  server.Expect(EventType::kRejected, 10);
  net.Run(1h);
  server.ExpectNothing();
  EXPECT_EQ(TimesOf("REP").size(), 1u);
  EndAll();
}

// Two connections of a peer cannot share a communication id. The second REP is an error.
TEST_F(Stale, AReplyWithAnIdOfALiveConnectionIsSilence) {
  EstablishToPeer();
  active = client.Resolved("10.0.0.9", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn + 1)), 0);
  our_id = Last<wire::CmReq>().local_comm_id;
  TakeSaid();
  wire::CmRep rep = PeersRep();
  rep.local_qpn++;
  ToClient(rep);
  EXPECT_TRUE(TakeSaid().empty());
  client.ExpectNothing();
  EXPECT_EQ(client_node.cm.statistics().dropped_id_in_use, 1u);
}

// ---- which connection a message belongs to

TEST_F(Stale, ADisconnectForAnotherQpIsSilence) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersRtu());
  server.Expect(EventType::kEstablished);
  TakeSaid();
  ToServer(PeersDreq(kServerQpn + 1));
  EXPECT_TRUE(TakeSaid().empty());
  server.ExpectNothing();
}

TEST_F(Stale, WhatNamesAnotherOfThePeersIdsIsOfNoConnection) {
  EstablishToPeer();
  TakeSaid();
  ToClient({wire::CmRtu{kPeersId + 1, our_id, {}}});
  ToClient({wire::CmDrep{kPeersId + 1, our_id, {}}});
  wire::CmRej rej = PeersRej(28, CmMessageType::kOther);
  rej.local_comm_id++;
  ToClient(rej);
  EXPECT_TRUE(TakeSaid().empty());
  client.ExpectNothing();
  EXPECT_EQ(client_node.cm.statistics().dropped_no_match, 3u);
}

// A peer that timed out before our answer does not have our id. The peer's GUID and the peer's own
// id identify the request.
TEST_F(Stale, ARequestThatWasGivenUpIsFoundByItsGuid) {
  RequestFromPeer();
  wire::CmRej rej = PeersRej(4, CmMessageType::kOther);
  const uint64_t stranger = htobe64(kPeersGuid + 1), guid = htobe64(kPeersGuid);
  std::memcpy(rej.additional_info.data(), &stranger, sizeof stranger);
  rej.additional_info_bytes = sizeof stranger;
  ToServer(rej);
  ToServer(PeersReq());
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"MRA"});  // still held
  std::memcpy(rej.additional_info.data(), &guid, sizeof guid);
  ToServer(rej);
  EXPECT_EQ(server.Accept(passive, kServerUid, Program::Parameters(kServerQpn)), EINVAL);
  server.ExpectNothing();
  ToServer(PeersReq());
  server.Expect(EventType::kConnectRequest);  // the old request was removed: this one is new
  EndAll();
}

TEST_F(Stale, ARequestThatWasGivenUpAfterTheReplyIsRejected4) {
  RequestFromPeer();
  ReplyToPeer();
  wire::CmRej rej = PeersRej(4, CmMessageType::kOther);
  rej.remote_comm_id = 0;
  const uint64_t guid = htobe64(kPeersGuid);
  std::memcpy(rej.additional_info.data(), &guid, sizeof guid);
  rej.additional_info_bytes = sizeof guid;
  ToServer(rej);
  server.Expect(EventType::kRejected, 4);
  EndAll();
}

// The application gets every reason unchanged (ib_cm_rej_reason).
TEST_F(Stale, EveryReasonReachesTheApplication) {
  for (uint16_t reason = 1; reason <= 35; reason++) {
    if (reason == 4) continue;  // found by the GUID, as above
    RequestToPeer();
    wire::CmRej rej = PeersRej(reason, CmMessageType::kReq);
    rej.local_comm_id = 0;
    rej.private_data[0] = static_cast<uint8_t>(reason);
    ToClient(rej);
    const rdma_ucm_conn_param conn = client.Expect(EventType::kRejected, reason).raw.param.conn;
    EXPECT_EQ(conn.private_data_len, 148);
    EXPECT_EQ(conn.private_data[0], reason);
    EXPECT_EQ(client.Destroy(active), 0);
  }
  EndAll();
}

}  // namespace
}  // namespace rdmaemu::cm
