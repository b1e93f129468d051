// Tests ids whose manager is iw_cm: their events, the peer's events after a failed step, QPs that
// end with their connection, and lossy networks.
#include <infiniband/ib.h>

#include <cstring>

#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

class Iwarp : public testing::Test {
 protected:
  static constexpr uint32_t kClientQpn = 17, kServerQpn = 23;
  static constexpr uint64_t kServerUid = 777;

  Iwarp() {
    for (Node* node : {&client_node, &server_node}) {
      node->profile.cm.manager = ConnectionManager::kIwarp;
      node->profile.cm.connect_timeout = 130s;
      node->profile.cm.reply_timeout = 10s;
      node->profile.cm.max_reply_private_data = 252;
    }
    client_node.idle_qps = {kClientQpn};
    server_node.idle_qps = {kServerQpn};
    listener = server.Listener("10.0.0.2", 7000);
  }

  void Request(const std::string& data = "hello") {
    active = client.Resolved("10.0.0.2", 7000);
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn, data)), 0);
    net.Settle();
    request = server.Expect(EventType::kConnectRequest);
    passive = request.id;
  }
  int Accept(const std::string& data = "welcome") {
    return server.Accept(passive, kServerUid, Program::Parameters(kServerQpn, data));
  }
  void Establish() {
    ASSERT_NO_FATAL_FAILURE(Request());
    ASSERT_EQ(Accept(), 0);
    server.Expect(EventType::kEstablished);
    net.Settle();
    client.Expect(EventType::kEstablished);
  }
  void ExpectBothDown() {
    client.Expect(EventType::kDisconnected);
    server.Expect(EventType::kDisconnected);
    EXPECT_TRUE(client_node.connected_qps.empty());
    EXPECT_TRUE(server_node.connected_qps.empty());
    net.Run(10min);
    client.ExpectNothing();  // no TIMEWAIT_EXIT
    server.ExpectNothing();
  }
  // Drops the first message of a kind.
  void Lose(const char* name) {
    net.filter = [name, left = 1](const wire::CmMessage& message) mutable {
      return Net::Fate{.lost = std::string_view(wire::CmName(message.body)) == name && left-- > 0};
    };
  }
  void EndAll() {
    client_node.cm.GroupGone(net.now, client.group);
    server_node.cm.GroupGone(net.now, server.group);
    net.Run(24h);
    for (const auto& node : net.nodes) {
      EXPECT_EQ(node->cm.ids(), 0u);
      EXPECT_EQ(node->cm.connections(), 0u);
      EXPECT_EQ(node->cm.NextDeadline(), std::nullopt);
    }
  }
  static std::string DataOf(const TakenEvent& event) {
    const rdma_ucm_conn_param& conn = event.raw.param.conn;
    return {conn.private_data, conn.private_data + conn.private_data_len};
  }

  Net net;
  Node& client_node = net.Add("10.0.0.1");
  Node& server_node = net.Add("10.0.0.2");
  Program client{client_node, 1};
  Program server{server_node, 2};
  uint32_t listener = 0, active = 0, passive = 0;
  TakenEvent request = {};
};

TEST_F(Iwarp, TheAcceptItselfEstablishesThePassiveSideAndTheReplyTheActiveOne) {
  Request();
  EXPECT_EQ(DataOf(request), "hello");
  EXPECT_EQ(request.raw.param.conn.qp_num, 0u);
  EXPECT_EQ(request.raw.param.conn.retry_count, 0);
  ASSERT_EQ(Accept(), 0);
  const TakenEvent there = server.Expect(EventType::kEstablished);  // before any delivery
  EXPECT_EQ(there.uid, kServerUid);
  EXPECT_EQ(DataOf(there), "");
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kEstablished)), "welcome");
  ASSERT_TRUE(client_node.connected_qps.contains(kClientQpn));
  ASSERT_TRUE(server_node.connected_qps.contains(kServerQpn));
  const QpConnection& ours = client_node.connected_qps[kClientQpn];
  const QpConnection& theirs = server_node.connected_qps[kServerQpn];
  EXPECT_EQ(ours.remote_qpn, kServerQpn);
  EXPECT_EQ(theirs.remote_qpn, kClientQpn);
  EXPECT_EQ(ours.rq_psn, theirs.sq_psn);
  EXPECT_EQ(theirs.rq_psn, ours.sq_psn);
  EndAll();
}

// Measured: after connect {3, 5} and accept {6, 2}, both ends have the depths that they support.
TEST_F(Iwarp, TheDepthsAreNegotiated) {
  active = client.Resolved("10.0.0.2", 7000);
  rdma_ucm_conn_param asked = Program::Parameters(kClientQpn);
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  ASSERT_EQ(client.Connect(active, asked), 0);
  net.Settle();
  request = server.Expect(EventType::kConnectRequest);
  EXPECT_EQ(request.raw.param.conn.responder_resources, 3);
  EXPECT_EQ(request.raw.param.conn.initiator_depth, 5);
  rdma_ucm_conn_param answered = Program::Parameters(kServerQpn);
  answered.responder_resources = 2;
  answered.initiator_depth = 6;
  ASSERT_EQ(server.Accept(request.id, kServerUid, answered), 0);
  const TakenEvent there = server.Expect(EventType::kEstablished);
  EXPECT_EQ(there.raw.param.conn.responder_resources, 5);
  EXPECT_EQ(there.raw.param.conn.initiator_depth, 3);
  net.Settle();
  const TakenEvent here = client.Expect(EventType::kEstablished);
  EXPECT_EQ(here.raw.param.conn.responder_resources, 3);
  EXPECT_EQ(here.raw.param.conn.initiator_depth, 5);
  EXPECT_EQ(client_node.connected_qps[kClientQpn].initiator_depth, 3);
  EXPECT_EQ(client_node.connected_qps[kClientQpn].responder_resources, 5);
  EXPECT_EQ(server_node.connected_qps[kServerQpn].initiator_depth, 5);
  EXPECT_EQ(server_node.connected_qps[kServerQpn].responder_resources, 3);
  EndAll();
}

// Measured: connect {5, 3} and accept {10, 2}. The passive side reserves room for all READs of the
// peer. The active side gets both values of the reply, even above the requested ones.
TEST_F(Iwarp, TheActiveSideTakesTheDepthsOfTheReply) {
  active = client.Resolved("10.0.0.2", 7000);
  rdma_ucm_conn_param asked = Program::Parameters(kClientQpn);
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  ASSERT_EQ(client.Connect(active, asked), 0);
  net.Settle();
  request = server.Expect(EventType::kConnectRequest);
  rdma_ucm_conn_param answered = Program::Parameters(kServerQpn);
  answered.responder_resources = 10;
  answered.initiator_depth = 2;
  ASSERT_EQ(server.Accept(request.id, kServerUid, answered), 0);
  const TakenEvent there = server.Expect(EventType::kEstablished);
  EXPECT_EQ(there.raw.param.conn.responder_resources, 2);
  EXPECT_EQ(there.raw.param.conn.initiator_depth, 10);
  net.Settle();
  const TakenEvent here = client.Expect(EventType::kEstablished);
  EXPECT_EQ(here.raw.param.conn.responder_resources, 10);
  EXPECT_EQ(here.raw.param.conn.initiator_depth, 2);
  EXPECT_EQ(client_node.connected_qps[kClientQpn].initiator_depth, 10);
  EXPECT_EQ(client_node.connected_qps[kClientQpn].responder_resources, 2);
  EndAll();
}

// Measured on siw, whose messages hold 251 bytes.
TEST_F(Iwarp, PrivateDataOf251BytesPass) {
  const std::string most(251, 'm');
  Request(most);
  EXPECT_EQ(DataOf(request), most);
  ASSERT_EQ(Accept(most), 0);
  server.Expect(EventType::kEstablished);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kEstablished)), most);
  EndAll();
}

TEST_F(Iwarp, ARequestWithMoreIsAResetThatNobodyHearsOf) {
  for (const size_t bytes : {252, 255}) {
    active = client.Resolved("10.0.0.2", 7000);
    client_node.idle_qps.insert(kClientQpn);
    const rdma_ucm_conn_param asked = Program::Parameters(kClientQpn, std::string(bytes, 'x'));
    ASSERT_EQ(client.Connect(active, asked), 0);
    net.Settle();
    EXPECT_EQ(DataOf(client.Expect(EventType::kRejected, -ECONNRESET)), "");
    server.ExpectNothing();
  }
  EndAll();
}

TEST_F(Iwarp, AReplyWithMoreIsAConnectErrorAndEndsThePeer) {
  Request();
  EXPECT_EQ(Accept(std::string(253, 'x')), EINVAL);
  net.Settle();
  client.Expect(EventType::kRejected, -ECONNRESET);
  client_node.idle_qps.insert(kClientQpn);
  Request();
  ASSERT_EQ(Accept(std::string(252, 'x')), 0);
  server.Expect(EventType::kEstablished);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kConnectError, -EINVAL)), "");
  server.Expect(EventType::kDisconnected);
  EndAll();
}

TEST_F(Iwarp, ARejectWithMoreIsAConnectError) {
  Request();
  ASSERT_EQ(server.Reject(passive, std::string(251, 'r')), 0);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kRejected, -ECONNRESET)), std::string(251, 'r'));
  client_node.idle_qps.insert(kClientQpn);
  Request();
  ASSERT_EQ(server.Reject(passive, std::string(252, 'r')), 0);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kConnectError, -EINVAL)), "");
  EndAll();
}

TEST_F(Iwarp, ADisconnectEndsBothEndsAndTheirQps) {
  Establish();
  ASSERT_EQ(client.Disconnect(active), 0);
  EXPECT_TRUE(client_node.connected_qps.empty());
  net.Settle();
  ExpectBothDown();
  EXPECT_EQ(client.Disconnect(active), 0);
  EXPECT_EQ(server.Disconnect(passive), 0);
  EXPECT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), EINVAL);
  EndAll();
}

TEST_F(Iwarp, ADisconnectBeforeTheReplyHasArrivedEndsThePeerToo) {
  Request();
  ASSERT_EQ(Accept(), 0);
  server.Expect(EventType::kEstablished);
  ASSERT_EQ(server.Disconnect(passive), 0);
  server.Expect(EventType::kDisconnected);
  net.Settle();
  client.Expect(EventType::kEstablished);
  client.Expect(EventType::kDisconnected);
  EXPECT_TRUE(client_node.connected_qps.empty());
  EndAll();
}

TEST_F(Iwarp, AQpThatFailsOrIsDestroyedEndsTheConnection) {
  Establish();
  server_node.EndQp(net.now, kServerQpn);
  net.Settle();
  ExpectBothDown();
  EndAll();
}

TEST_F(Iwarp, AnIdThatIsDestroyedTakesItsQpAndThePeerDown) {
  Establish();
  ASSERT_EQ(server.Destroy(passive), 0);
  EXPECT_TRUE(server_node.connected_qps.empty());
  net.Settle();
  client.Expect(EventType::kDisconnected);
  EXPECT_TRUE(client_node.connected_qps.empty());
  server.ExpectNothing();
  EndAll();
}

TEST_F(Iwarp, AConnectThatNobodyAcceptsIsUnreachableInTenSecondsAndTheAcceptComesTooLate) {
  Request();
  net.Run(9800ms);
  client.ExpectNothing();
  net.Run(300ms);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(Accept(), ECONNRESET);
  EXPECT_TRUE(server_node.connected_qps.empty());
  net.Run(10min);
  client.ExpectNothing();
  server.ExpectNothing();
  EndAll();
}

// On one host the REQ is retransmitted, and an MRA answers each REQ. The MRA does not extend the
// time-out.
TEST_F(Iwarp, OnOneHostTheTimeIsTheSame) {
  client.Listener("10.0.0.1", 7000);
  active = client.Resolved("10.0.0.1", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  client.Expect(EventType::kConnectRequest);
  net.Run(9800ms);
  EXPECT_GT(net.sent["MRA"], 0);
  client.ExpectNothing();
  net.Run(300ms);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  client_node.cm.GroupGone(net.now, client.group);
}

// Measured on siw: the accept looks up the QP first.
TEST_F(Iwarp, ALateAcceptWithoutAQpIsInvalidRatherThanReset) {
  Request();
  net.Run(10min);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EXPECT_EQ(server.Accept(passive, kServerUid, Program::Parameters(0)), EINVAL);
  EXPECT_EQ(Accept(), ECONNRESET);
  EndAll();
}

TEST_F(Iwarp, TheGidOfABoundIdIsTheMacOfItsDevice) {
  client_node.device.node_guid = htobe64(0x02020afffe0b0c0d);
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Bind(id, "10.0.0.1", 0), 0);
  const auto gids = client.Ask<rdma_ucm_query_addr_resp>(
      RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_GID});
  sockaddr_ib source, destination;
  std::memcpy(&source, &gids.src_addr, sizeof source);
  std::memcpy(&destination, &gids.dst_addr, sizeof destination);
  constexpr uint8_t kMac[16] = {0x00, 0x02, 0x0a, 0x0b, 0x0c, 0x0d}, kNone[16] = {};
  EXPECT_EQ(std::memcmp(&source.sib_addr, kMac, sizeof kMac), 0);
  EXPECT_EQ(std::memcmp(&destination.sib_addr, kNone, sizeof kNone), 0);
}

TEST_F(Iwarp, AHeldRequestIsNotProlongedByItsMra) {
  net.filter = [](const wire::CmMessage& message) {
    return Net::Fate{.lost = std::string_view(wire::CmName(message.body)) == "REP"};
  };
  Request();
  ASSERT_EQ(Accept(), 0);
  server.Expect(EventType::kEstablished);
  net.Run(11s);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  server.Expect(EventType::kDisconnected);  // the peer has withdrawn its request
  EndAll();
}

TEST_F(Iwarp, ARejectIsAResetWithThePrivateDataThatWereSent) {
  Request();
  ASSERT_EQ(server.Reject(passive, "no"), 0);
  EXPECT_EQ(server.Reject(passive, "no"), EINVAL);
  EXPECT_EQ(Accept(), EINVAL);
  EXPECT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kRejected, -ECONNRESET)), "no");
  EXPECT_EQ(client.Disconnect(active), 0);
  EndAll();
}

TEST_F(Iwarp, ARequestWhoseIdIsDestroyedIsAResetAndOneTakenBackMakesTheAcceptOne) {
  Request();
  ASSERT_EQ(server.Destroy(passive), 0);
  net.Settle();
  EXPECT_EQ(DataOf(client.Expect(EventType::kRejected, -ECONNRESET)), "");
  client_node.idle_qps.insert(kClientQpn);
  Request();
  ASSERT_EQ(client.Destroy(active), 0);
  net.Settle();
  server.ExpectNothing();
  EXPECT_EQ(Accept(), ECONNRESET);
  EndAll();
}

TEST_F(Iwarp, NobodyListensOnAnotherHost) {
  active = client.Resolved("10.0.0.2", 7001);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  client.Expect(EventType::kRejected, -ECONNREFUSED);
  EndAll();
}

// rdma_connect(3) blocks on an RNIC. The library waits on an event channel of its own.
class IwarpBlocking : public Iwarp {
 protected:
  // Starts a connect. `waiting` gets the outcome.
  void Begin(uint16_t port) {
    active = client.Resolved("10.0.0.2", port);
    EXPECT_EQ(Connect(), EINPROGRESS);
  }
  int Connect() {
    rdma_ucm_connect in = {};
    in.id = active;
    in.conn_param = Program::Parameters(kClientQpn);
    in.reserved = waiting.channel.handle;
    return client.Errno(RDMA_USER_CM_CMD_CONNECT, in);
  }
  Program waiting{client_node, 1};
};

TEST_F(IwarpBlocking, SucceedsWhenTheRequestIsHeldNotWhenItIsAccepted) {
  Begin(7000);
  waiting.ExpectNothing();
  net.Settle();
  waiting.Expect(EventType::kEstablished, 0);
  client.ExpectNothing();
  passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(Accept(), 0);
  net.Settle();
  client.Expect(EventType::kEstablished);
  waiting.ExpectNothing();
  EndAll();
}

TEST_F(IwarpBlocking, IsRefusedAndMayBeTriedAgain) {
  Begin(7001);
  net.Settle();
  waiting.Expect(EventType::kEstablished, -ECONNREFUSED);
  client.ExpectNothing();
  EXPECT_EQ(client.Disconnect(active), EINVAL);
  server.Listener("10.0.0.2", 7001);
  EXPECT_EQ(Connect(), EINPROGRESS);
  net.Settle();
  waiting.Expect(EventType::kEstablished, 0);
  EndAll();
}

TEST_F(IwarpBlocking, TimesOutWhenNobodyIsThereAfterTcpsTime) {
  net.filter = [](const wire::CmMessage&) { return Net::Fate{.lost = true}; };
  Begin(7000);
  net.Run(129s);
  waiting.ExpectNothing();
  net.Run(2s);
  waiting.Expect(EventType::kEstablished, -ETIMEDOUT);
  net.Run(10min);
  client.ExpectNothing();
  EndAll();
}

// The peer sends ICMP port unreachable, where TCP would send RST.
TEST_F(IwarpBlocking, IsRefusedWhereNobodyHasThePort) {
  net.filter = [](const wire::CmMessage&) { return Net::Fate{.lost = true}; };
  Begin(7000);
  const NetAddress local = *NetAddress::Parse("10.0.0.1"), remote = *NetAddress::Parse("10.0.0.2");
  client_node.cm.Refused(net.now, local, *NetAddress::Parse("10.0.0.3"));
  client_node.cm.Refused(net.now, remote, remote);
  net.Settle();
  waiting.ExpectNothing();
  client_node.cm.Refused(net.now, local, remote);
  net.Settle();
  waiting.Expect(EventType::kEstablished, -ECONNREFUSED);
  client.ExpectNothing();
  net.filter = {};
  EXPECT_EQ(Connect(), EINPROGRESS);  // a new attempt is allowed
  net.Settle();
  waiting.Expect(EventType::kEstablished, 0);
  EndAll();
}

TEST_F(IwarpBlocking, ARefusalAfterTheRequestWasHeldMeansNothing) {
  Begin(7000);
  net.Settle();
  waiting.Expect(EventType::kEstablished, 0);
  client_node.cm.Refused(net.now, *NetAddress::Parse("10.0.0.1"), *NetAddress::Parse("10.0.0.2"));
  net.Settle();
  client.ExpectNothing();
  EndAll();
}

TEST_F(IwarpBlocking, AHeldRequestIsUnreachableTenSecondsAfterItWasHeld) {
  Lose("REQ");
  Begin(7000);
  net.Run(6s);
  waiting.Expect(EventType::kEstablished, 0);
  net.Run(8s);
  client.ExpectNothing();
  net.Run(2s);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
  EndAll();
}

TEST_F(IwarpBlocking, AnIdThatIsDestroyedWakesWhoWaits) {
  Begin(7000);
  ASSERT_EQ(client.Destroy(active), 0);
  waiting.Expect(EventType::kEstablished, -ECONNABORTED);
  EndAll();
}

TEST_F(IwarpBlocking, TheChannelMustBeTheGroupsOwn) {
  Program stranger(client_node, 3);
  active = client.Resolved("10.0.0.2", 7000);
  rdma_ucm_connect in = {};
  in.id = active;
  in.conn_param = Program::Parameters(kClientQpn);
  in.reserved = stranger.channel.handle;
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_CONNECT, in), EINVAL);
  EXPECT_EQ(net.sent["REQ"], 0);
}

TEST_F(Iwarp, NobodyListensOnThisHost) {
  const uint32_t id = server.Resolved("10.0.0.2", 7001);
  EXPECT_EQ(server.Connect(id, Program::Parameters(kServerQpn)), ECONNREFUSED);
  server.ExpectNothing();
  // The failed connect did not change the id. A later connect succeeds when there is a listener.
  server.Listener("10.0.0.2", 7001);
  EXPECT_EQ(server.Connect(id, Program::Parameters(kServerQpn)), 0);
  EndAll();
}

TEST_F(Iwarp, AFullBacklogIsAReset) {
  server.Listener("10.0.0.2", 7002, 1);
  client_node.idle_qps = {31, 32};
  const uint32_t first = client.Resolved("10.0.0.2", 7002);
  const uint32_t second = client.Resolved("10.0.0.2", 7002);
  ASSERT_EQ(client.Connect(first, Program::Parameters(31)), 0);
  ASSERT_EQ(client.Connect(second, Program::Parameters(32)), 0);
  net.Settle();
  EXPECT_EQ(client.Expect(EventType::kRejected, -ECONNRESET).id, second);
  client.ExpectNothing();
  EndAll();
}

TEST_F(Iwarp, InsideAHostPrivateDataAreAsLong) {
  server_node.idle_qps = {kServerQpn, 24};
  const uint32_t id = server.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(server.Connect(id, Program::Parameters(24, std::string(251, 'x'))), 0);
  net.Settle();
  request = server.Expect(EventType::kConnectRequest);
  EXPECT_EQ(DataOf(request), std::string(251, 'x'));
  passive = request.id;
  ASSERT_EQ(Accept(std::string(251, 'y')), 0);
  net.Settle();
  server.Expect(EventType::kEstablished);
  EXPECT_EQ(DataOf(server.Expect(EventType::kEstablished)), std::string(251, 'y'));
  EndAll();
}

TEST_F(Iwarp, AnAcceptHasItsLimit) {
  server_node.idle_qps = {kServerQpn, 24};
  const uint32_t id = server.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(server.Connect(id, Program::Parameters(24)), 0);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  EXPECT_EQ(Accept(std::string(253, 'y')), EINVAL);
  net.Settle();
  server.Expect(EventType::kRejected, -ECONNRESET);
  EndAll();
}

TEST_F(Iwarp, ConnectAndAcceptNeedAQpThatIsThere) {
  active = client.Resolved("10.0.0.2", 7000);
  EXPECT_EQ(client.Connect(active, Program::Parameters(999)), EINVAL);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  const uint32_t other = client.Resolved("10.0.0.2", 7000);
  EXPECT_EQ(client.Connect(other, Program::Parameters(kClientQpn)), EINVAL);  // the QP is in use
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  EXPECT_EQ(server.Accept(passive, 1, Program::Parameters(999)), EINVAL);
  net.Settle();
  client.Expect(EventType::kRejected, -ECONNRESET);
  EndAll();
}

TEST_F(Iwarp, AQpThatGoesWhileItConnectsTakesTheRequestBack) {
  Request();
  client_node.EndQp(net.now, kClientQpn);
  client.Expect(EventType::kRejected, -ECONNRESET);
  net.Settle();
  EXPECT_EQ(Accept(), ECONNRESET);
  EndAll();
}

// Measured (scenario removal). The order is DEVICE_REMOVAL of the listener, DISCONNECTED of the
// passive id, DEVICE_REMOVAL of the active id, then of the passive id.
TEST_F(Iwarp, ARemovedDeviceEndsItsConnectionsAndSaysSoOnce) {
  server_node.idle_qps = {kServerQpn, 24};
  active = server.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(server.Connect(active, Program::Parameters(24)), 0);
  net.Settle();
  passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(Accept(), 0);
  server.Expect(EventType::kEstablished);
  net.Settle();
  server.Expect(EventType::kEstablished);
  server_node.cm.DeviceRemoved(net.now, 0);
  net.Settle();
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, listener);
  EXPECT_EQ(server.Expect(EventType::kDisconnected).id, passive);
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, active);
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, passive);
  server.ExpectNothing();
  EXPECT_TRUE(server_node.connected_qps.empty());
  EXPECT_EQ(server.Disconnect(active), ENXIO);
  EndAll();
}

TEST_F(Iwarp, LostAndRepeatedMessagesChangeNothing) {
  for (const char* lost : {"REQ", "REP", "RTU", "DREQ", "DREP"}) {
    SCOPED_TRACE(lost);
    int losses = 1;
    net.filter = [&losses, lost](const wire::CmMessage& message) {
      if (std::string_view(wire::CmName(message.body)) == lost && losses-- > 0) {
        return Net::Fate{.lost = true};
      }
      return Net::Fate{.copies = 2};
    };
    client_node.idle_qps = {kClientQpn};
    server_node.idle_qps = {kServerQpn};
    active = client.Resolved("10.0.0.2", 7000);
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
    net.Run(5s);
    passive = server.Expect(EventType::kConnectRequest).id;
    ASSERT_EQ(Accept(), 0);
    server.Expect(EventType::kEstablished);
    net.Run(4900ms);
    client.Expect(EventType::kEstablished);
    ASSERT_EQ(server.Disconnect(passive), 0);
    net.Run(60s);
    ExpectBothDown();
  }
  EndAll();
}

TEST_F(Iwarp, NoMulticastNoDatagramsNoAnswersInAStateThatHasNone) {
  Establish();
  EXPECT_EQ(client.Establish(active), EINVAL);
  EXPECT_EQ(server.Reject(passive), EINVAL);
  EXPECT_EQ(Accept(), EINVAL);
  EXPECT_EQ(server.Disconnect(listener), EINVAL);
  rdma_ucm_join_ip_mcast join = {};
  join.id = server.Create(RDMA_PS_UDP);
  ASSERT_EQ(server.Bind(join.id, "10.0.0.2", 0), 0);
  join.addr.sin6_family = AF_INET;
  EXPECT_EQ(server.Errno(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join), ENOSYS);
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{active, IBV_EVENT_CQ_ERR}), 0);
  net.Settle();
  client.ExpectNothing();
  server.ExpectNothing();
  EXPECT_TRUE(server_node.connected_qps.contains(kServerQpn));
  EndAll();
}

}  // namespace
}  // namespace rdmaemu::cm
