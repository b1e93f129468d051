// Tests a host that restarts at once, while its peer still has connections to the host's previous
// incarnation. The host has the same address and GUID, which belong to a device, as with the
// kernel's drivers. Its random ids are new.
#include "emulator/cm/ib_cm.h"
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

class RestartTest : public testing::Test {
 protected:
  static constexpr uint32_t kOldQpn = 17, kNewQpn = 18, kServerQpn = 23;

  RestartTest() {
    net.filter = [this](const wire::CmMessage& message) {
      if (const auto* req = std::get_if<wire::CmReq>(&message.body)) {
        requested.push_back(req->local_comm_id);
      }
      return Net::Fate{};
    };
    StartClient();
    const uint32_t active = Connect(kOldQpn);
    const uint32_t passive = server.Expect(EventType::kConnectRequest).id;
    EXPECT_EQ(server.Accept(passive, kOldUid, Program::Parameters(kServerQpn)), 0);
    Finish(active, kOldUid);
    // The machine loses its power. No message is sent.
    net.nodes.pop_back();
    StartClient();
  }
  void StartClient() {
    net.nodes.push_back(std::make_unique<Node>(net, "10.0.0.1", 1000 + ++lives));
    net.nodes.back()->device.node_guid = 0x0123456789abcdef;
    client = std::make_unique<Program>(*net.nodes.back(), 1);
  }
  uint32_t Connect(uint32_t qpn) {
    const uint32_t active = client->Resolved("10.0.0.2", 7000);
    EXPECT_EQ(client->Connect(active, Program::Parameters(qpn)), 0);
    net.Settle();
    return active;
  }
  void Finish(uint32_t active, uint64_t uid) {
    net.Settle();
    client->Expect(EventType::kConnectResponse);
    EXPECT_EQ(client->Establish(active), 0);
    net.Settle();
    EXPECT_EQ(server.Expect(EventType::kEstablished).uid, uid);
  }

  static constexpr uint64_t kOldUid = 777, kNewUid = 888;
  Net net;
  Node& server_node = net.Add("10.0.0.2");
  Program server{server_node, 2};
  uint32_t listener = server.Listener("10.0.0.2", 7000);
  std::unique_ptr<Program> client;
  uint64_t lives = 0;
  std::vector<uint32_t> requested;  // communication ids
};

TEST_F(RestartTest, ConnectsAtOnceWithAnotherQueuePair) {
  const uint32_t active = Connect(kNewQpn);
  ASSERT_EQ(requested.size(), 2u);
  EXPECT_NE(requested[0], requested[1]) << "the peer would take it for a repeat, and be silent";
  const uint32_t passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(server.Accept(passive, kNewUid, Program::Parameters(kServerQpn + 1)), 0);
  Finish(active, kNewUid);
  server.ExpectNothing();  // the application must end the old connection itself
}

// A new QP gets the old QP's number once in 2^24 times. The peer then ends its old connection (IBTA
// 12.9.8.3.1).
TEST_F(RestartTest, TheSameNumberAgainEndsTheOldConnectionAndThenConnects) {
  uint32_t active = Connect(kOldQpn);
  EXPECT_EQ(
      client->Expect(EventType::kRejected, static_cast<int>(RejectReason::kStaleConnection)).id,
      active);
  net.Settle();
  EXPECT_EQ(server.Expect(EventType::kDisconnected).uid, kOldUid);
  active = Connect(kOldQpn);
  const uint32_t passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(server.Accept(passive, kNewUid, Program::Parameters(kServerQpn + 1)), 0);
  Finish(active, kNewUid);
}

TEST_F(RestartTest, AnswersThePeersDisconnectOfWhatItNoLongerKnows) {
  // The server's end of the old connection is the second id of the server's program.
  const uint32_t old = listener + 1;
  ASSERT_EQ(server.Disconnect(old), 0);
  net.Settle();
  EXPECT_EQ(server.Expect(EventType::kDisconnected).uid, kOldUid);
  net.Run(1h);
  EXPECT_EQ(server.Expect(EventType::kTimewaitExit).uid, kOldUid);
  server.ExpectNothing();
}

}  // namespace
}  // namespace rdmaemu::cm
