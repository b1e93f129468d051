// Tests that destroying an id in any state sends the peer the state's message (ib_destroy_cm_id)
// once. Afterwards no connection remains.
#include <endian.h>

#include "emulator/cm/wire_peer_for_test.h"

namespace rdmaemu::cm {
namespace {

using wire::CmMessageType;

class DestroyTest : public WireTest {
 protected:
  void DestroyClient() {
    TakeSaid();
    ASSERT_EQ(client.Destroy(active), 0);
  }
  void DestroyServer() {
    TakeSaid();
    ASSERT_EQ(server.Destroy(passive), 0);
  }
  // Expects a REJ of reason 28 for `message`, with or without our id.
  void ExpectRej28(CmMessageType message, bool names_ours) {
    EXPECT_EQ(TakeSaid(), std::vector<std::string>{"REJ"});
    const wire::CmRej& rej = Last<wire::CmRej>();
    EXPECT_EQ(rej.reason, 28);
    EXPECT_EQ(rej.message, message);
    EXPECT_EQ(rej.remote_comm_id, kPeersId);
    EXPECT_EQ(rej.local_comm_id != 0, names_ours);
    EXPECT_EQ(rej.additional_info_bytes, 0);
  }
  void ExpectRej4() {
    EXPECT_EQ(TakeSaid(), std::vector<std::string>{"REJ"});
    const wire::CmRej& rej = Last<wire::CmRej>();
    EXPECT_EQ(rej.reason, 4);
    EXPECT_EQ(rej.local_comm_id, our_id);
    EXPECT_EQ(rej.remote_comm_id, 0u);
    ASSERT_EQ(rej.additional_info_bytes, 8);
    EXPECT_EQ(std::memcmp(rej.additional_info.data(), &client_node.device.node_guid, 8), 0);
  }
  // Checks that nothing more is sent, whatever the peer sends. Only a DREQ is answered.
  void ExpectTheEnd() {
    net.Run(1h);
    EXPECT_TRUE(TakeSaid().empty());
    client.ExpectNothing();
    server.ExpectNothing();
    EXPECT_EQ(client_node.cm.connections(), 0u);
    EXPECT_EQ(server_node.cm.connections(), 0u);
    EndAll();
  }
};

TEST_F(DestroyTest, ARequestIsTakenBackWithReason4AndTheGuid) {
  RequestToPeer();
  DestroyClient();
  ExpectRej4();
  ExpectTheEnd();
}
TEST_F(DestroyTest, ARequestThatThePeerHoldsIsTakenBackWithReason4) {
  RequestToPeer();
  ToClient(PeersMra(CmMessageType::kReq, 24));
  DestroyClient();
  ExpectRej4();
  ExpectTheEnd();
}
TEST_F(DestroyTest, AHeldRequestIsRejected28) {
  RequestFromPeer();
  DestroyServer();
  ExpectRej28(CmMessageType::kReq, true);
  ExpectTheEnd();
}
TEST_F(DestroyTest, AHeldReplyIsRejected28) {
  RequestToPeer();
  ToClient(PeersRep());
  client.Expect(EventType::kConnectResponse);
  DestroyClient();
  ExpectRej28(CmMessageType::kRep, true);
  ExpectTheEnd();
}
TEST_F(DestroyTest, AReplyIsTakenBackWithReason28) {
  RequestFromPeer();
  ReplyToPeer();
  DestroyServer();
  ExpectRej28(CmMessageType::kOther, true);
  ExpectTheEnd();
}
TEST_F(DestroyTest, AReplyThatThePeerHoldsIsTakenBackWithReason28) {
  RequestFromPeer();
  ReplyToPeer();
  ToServer(PeersMra(CmMessageType::kRep, 24));
  DestroyServer();
  ExpectRej28(CmMessageType::kOther, true);
  ExpectTheEnd();
}
// The kernel sends its DREQ once. The emulator retransmits the DREQ until the peer answers, so that
// the peer gets the DREQ on a lossy network, too (docs/design.md).
TEST_F(DestroyTest, AConnectionIsDisconnected) {
  EstablishToPeer();
  DestroyClient();
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"DREQ"});
  net.Run(5s);
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"DREQ"});
  ToClient(PeersDrep());
  ExpectTheEnd();
}
TEST_F(DestroyTest, AConnectionWhosePeerDisconnectsTooAnswersIt) {
  EstablishToPeer();
  DestroyClient();
  TakeSaid();
  ToClient(PeersDreq(kClientQpn));
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"DREP"});
  ExpectTheEnd();
}
TEST_F(DestroyTest, ADisconnectThatIsUnderWayGoesOn) {
  EstablishToPeer();
  ASSERT_EQ(client.Disconnect(active), 0);
  DestroyClient();
  EXPECT_TRUE(TakeSaid().empty());
  ToClient(PeersDrep());
  ExpectTheEnd();
}
TEST_F(DestroyTest, APeersDisconnectIsAnswered) {
  EstablishToPeer();
  ToClient(PeersDreq(kClientQpn));
  client.Expect(EventType::kDisconnected);
  DestroyClient();
  EXPECT_EQ(TakeSaid(), std::vector<std::string>{"DREP"});
  ExpectTheEnd();
}
TEST_F(DestroyTest, TimewaitIsSilent) {
  EstablishToPeer();
  ToClient(PeersDreq(kClientQpn));
  client.Expect(EventType::kDisconnected);
  ASSERT_EQ(client.Disconnect(active), 0);
  DestroyClient();
  ExpectTheEnd();
}
TEST_F(DestroyTest, WhatWasRejectedIsSilent) {
  RequestToPeer();
  ToClient(PeersRej(28, CmMessageType::kReq));
  client.Expect(EventType::kRejected, 28);
  DestroyClient();
  ExpectTheEnd();
}
TEST_F(DestroyTest, ANameRequestIsSilent) {
  active = client.Resolved("10.0.0.9", 7000, RDMA_PS_UDP);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  DestroyClient();
  ExpectTheEnd();
}

// ---- the same between two hosts: what the other application sees

TEST_F(CmTest, BothMayConnectToEachOtherAtOnce) {
  const uint32_t back = client.Listener("10.0.0.1", 7000);
  active = client.Resolved("10.0.0.2", 7000);
  const uint32_t servers = server.Resolved("10.0.0.1", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(17)), 0);
  ASSERT_EQ(server.Connect(servers, Program::Parameters(18)), 0);
  net.Settle();
  const uint32_t of_server = client.Expect(EventType::kConnectRequest).id;
  passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(client.Accept(of_server, 555, Program::Parameters(19)), 0);
  Accept();
  net.Settle();
  EXPECT_EQ(client.Expect(EventType::kConnectResponse).id, active);
  EXPECT_EQ(server.Expect(EventType::kConnectResponse).id, servers);
  ASSERT_EQ(client.Establish(active), 0);
  ASSERT_EQ(server.Establish(servers), 0);
  net.Settle();
  // Both connections exist. Neither of them has replaced the other.
  EXPECT_EQ(client.Expect(EventType::kEstablished).id, of_server);
  EXPECT_EQ(server.Expect(EventType::kEstablished).id, passive);
  EXPECT_EQ(client.Destroy(back), 0);
  EndAll();
}

TEST_F(CmTest, ADisconnectBeforeTheRtuArrivesEndsTheConnectionAllTheSame) {
  Request();
  Accept();
  net.Settle();
  client.Expect(EventType::kConnectResponse);
  Lose("RTU");
  ASSERT_EQ(client.Establish(active), 0);
  ASSERT_EQ(client.Disconnect(active), 0);
  net.Settle();
  server.Expect(EventType::kDisconnected);  // without ESTABLISHED
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  server.ExpectNothing();
  EndAll();
}

TEST_F(CmTest, BothDisconnectsAtOnceAnswerEachOther) {
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  server.Expect(EventType::kDisconnected);
  // Each side has received a DREQ and must answer with a DREP.
  ASSERT_EQ(client.Disconnect(active), 0);
  ASSERT_EQ(server.Disconnect(passive), 0);
  net.Run(1s);
  client.Expect(EventType::kTimewaitExit);
  server.Expect(EventType::kTimewaitExit);
  client.ExpectNothing();
  server.ExpectNothing();
  EXPECT_EQ(net.sent["DREQ"], 2);
  EXPECT_EQ(net.sent["DREP"], 2);
  EndAll();
}

}  // namespace
}  // namespace rdmaemu::cm
