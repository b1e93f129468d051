// Connections on an iWARP device, as measured on the kernel's siw (the suites name the scenarios).
// The tests check each side's events, their status and the length of private data. The end of the
// QP is the end of the connection.
#include <rdma/rdma_cma.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/contract/support/connection.h"

namespace rdma_contract {
namespace {

constexpr int kLongQuiet_ms = 3000;  // as long as rxe needs until TIMEWAIT_EXIT

class Siw : public ConnectionTest {
 protected:
  // Creates an id with a resolved route and a QP.
  void Prepare(int* id, int* qp, uint16_t to_port = 0) {
    ASSERT_NO_FATAL_FAILURE(Resolve(id, RDMA_PS_TCP, to_port));
    *qp = active.CreateCmQp(*id);
    ASSERT_GE(*qp, 0);
  }
  void ExpectBothDisconnected() {
    ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
    ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  }
  static void ExpectSilence(Side& side) {
    const EventCopy event = side.NextEvent(kLongQuiet_ms);
    EXPECT_FALSE(event.found) << Describe(event);
  }
  static void ExpectReset(Side& side) { ExpectEvent(side, RDMA_CM_EVENT_REJECTED, -ECONNRESET); }
  void PostReceives(Side& side, int qp, uint64_t first) {
    const Buffer buffer = Allocate(64);
    const Region region = side.Register(buffer);
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(side.PostReceive(qp, ReceiveInto(first + i, buffer, region)), 0);
    }
  }
  static void ExpectFlushed(Side& side, int qp, uint64_t first) {
    for (uint64_t i = 0; i < 3; ++i) {
      const Completion flushed = side.Poll(qp, Queue::kReceive);
      ASSERT_TRUE(flushed.found);
      EXPECT_EQ(flushed.wc.wr_id, first + i);
      EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR);
    }
  }
};

// True while the kernel holds an accepted TCP connection of local port `port`. Columns of
// /proc/net/tcp: local address, remote address, state (1 is ESTABLISHED, 8 is CLOSE_WAIT).
bool HasTcpConnection(uint16_t port) {
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned local = 0, state = 0;
    if (sscanf(line.c_str(), " %*u: %*x:%x %*x:%*x %x", &local, &state) == 2 && local == port &&
        (state == 1 || state == 8)) {
      return true;
    }
  }
  return false;
}

// A worker of siw releases the passive side's socket some time after the active side's event. Until
// then rdma_accept succeeds. The emulator has no TCP connection, so this returns at once.
void WaitForReleasedSocket(uint16_t port) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
  while (HasTcpConnection(port) && std::chrono::steady_clock::now() < until) sched_yield();
}

// ---- priv: the content of events

TEST_F(Siw, PrivCarriesPrivateDataWithTheLengthThatWasSent) {
  ASSERT_NO_FATAL_FAILURE(Establish(ConnectSpec(10, 1), ConnectSpec(7, 2)));
  ExpectPrivateData(request, 10, 10, 1);
  ExpectPrivateData(active_established, 7, 7, 2);
  EXPECT_FALSE(passive_established.has_private_data);
  EXPECT_EQ(passive_established.private_data_len, 0);
}

TEST_F(Siw, PrivWithoutPrivateDataHasNone) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  for (const EventCopy& event : {request, active_established, passive_established}) {
    EXPECT_FALSE(event.has_private_data);
    EXPECT_EQ(event.private_data_len, 0);
  }
}

TEST_F(Siw, PrivNegotiatesDepthsAndNamesNeitherQpNorRetries) {
  ConnectSpec asked, answered;
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  answered.responder_resources = 2;
  answered.initiator_depth = 6;
  ASSERT_NO_FATAL_FAILURE(Establish(asked, answered));
  EXPECT_EQ(request.conn.responder_resources, 3);
  EXPECT_EQ(request.conn.initiator_depth, 5);
  EXPECT_EQ(passive_established.conn.responder_resources, 5);
  EXPECT_EQ(passive_established.conn.initiator_depth, 3);
  EXPECT_EQ(active_established.conn.responder_resources, 3);
  EXPECT_EQ(active_established.conn.initiator_depth, 5);
  for (const EventCopy& event : {request, active_established, passive_established}) {
    EXPECT_EQ(event.conn.retry_count, 0);
    EXPECT_EQ(event.conn.rnr_retry_count, 0);
    EXPECT_EQ(event.conn.qp_num, 0u);
    EXPECT_EQ(event.conn.srq, 0);
  }
}

TEST_F(Siw, PrivWithNullParametersOffersWhatTheDeviceHas) {
  ConnectSpec none;
  none.null_parameters = true;
  ASSERT_NO_FATAL_FAILURE(Establish(none, none));
  EXPECT_EQ(request.conn.responder_resources, 128);
  EXPECT_EQ(request.conn.initiator_depth, 128);
  EXPECT_EQ(active_established.conn.responder_resources, 128);
}

TEST_F(Siw, PrivHasRoomFor251Bytes) {
  ASSERT_NO_FATAL_FAILURE(Establish(ConnectSpec(251, 1), ConnectSpec(251, 2)));
  ExpectPrivateData(request, 251, 251, 1);
  ExpectPrivateData(active_established, 251, 251, 2);
}

// rdma_connect has succeeded by then. siw_recv_mpa_rr treats the message as a protocol error.
TEST_F(Siw, PrivOfMoreBytesIsAResetThatThePassiveSideDoesNotHearOf) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  for (const uint8_t bytes : {252, 255}) {
    ASSERT_NO_FATAL_FAILURE(Prepare(&active_id, &active_qp));
    ASSERT_EQ(active.CmConnect(active_id, ConnectSpec(bytes)), 0);
    ExpectReset(active);
  }
  ExpectQuiet(passive);
}

TEST_F(Siw, PrivOf252BytesIsAConnectErrorOfTheActiveSide) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  passive_qp = passive.CreateCmQp(passive_id);
  ASSERT_EQ(passive.Accept(passive_id, ConnectSpec(252)), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(active, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL);
}

TEST_F(Siw, PrivTellsTheActiveSideTheDepthsOfTheReply) {
  ConnectSpec asked, answered;
  asked.responder_resources = 5;
  asked.initiator_depth = 3;
  answered.responder_resources = 10;
  answered.initiator_depth = 2;
  ASSERT_NO_FATAL_FAILURE(Establish(asked, answered));
  EXPECT_EQ(passive_established.conn.responder_resources, 2);
  EXPECT_EQ(passive_established.conn.initiator_depth, 10);
  EXPECT_EQ(active_established.conn.responder_resources, 10);
  EXPECT_EQ(active_established.conn.initiator_depth, 2);
}

TEST_F(Siw, PrivBeyondTheMostOfAnAcceptIsInvalidAndTellsThePeer) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  passive_qp = passive.CreateCmQp(passive_id);
  EXPECT_EQ(passive.Accept(passive_id, ConnectSpec(255)), EINVAL);
  ExpectReset(active);
}

// ---- rep_timeout: the accept itself establishes

TEST_F(Siw, RepTimeoutDoesNotComeWhenTheActiveSideFetchesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ExpectSilence(passive);
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
}

// ---- nolistener, noaccept, reject, backlog: connections that fail

TEST_F(Siw, NoListenerIsSaidByTheConnectItself) {
  ASSERT_NO_FATAL_FAILURE(Prepare(&active_id, &active_qp, 9));
  EXPECT_EQ(active.CmConnect(active_id, {}), ECONNREFUSED);
  ExpectQuiet(active);
}

// A machine without RDMA answers like one without a listener on the port.
TEST_F(Siw, NoDeviceThereIsSaidByTheConnectToo) {
  if (AddressWithoutRdma().empty()) GTEST_SKIP() << "no machine without RDMA here";
  active_id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(active_id, AddressWithoutRdma(), 9), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(active_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_GE(active.CreateCmQp(active_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, {}), ECONNREFUSED);
  ExpectQuiet(active);
}

TEST_F(Siw, NoAcceptIsUnreachableAndTheAcceptComesTooLate) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ExpectEvent(active, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  WaitForReleasedSocket(port);
  passive_qp = passive.CreateCmQp(passive_id);
  EXPECT_EQ(passive.Accept(passive_id, {}), ECONNRESET);
  ExpectQuiet(passive);
}

TEST_F(Siw, RejectIsAResetWithThePrivateDataThatWereSent) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request(ConnectSpec(2)));
  ASSERT_EQ(passive.Reject(passive_id, 10, 3), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, -ECONNRESET), 10, 10, 3);
  EXPECT_EQ(passive.Reject(passive_id), EINVAL);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

TEST_F(Siw, RejectHasRoomFor251BytesAndIsAConnectErrorAbove) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id, 251, 3), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, -ECONNRESET), 251, 251, 3);
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id, 252, 3), 0);
  ExpectEvent(active, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL);
}

TEST_F(Siw, RejectWithoutPrivateDataHasNone) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.Reject(passive_id), 0);
  EXPECT_FALSE(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, -ECONNRESET).has_private_data);
}

TEST_F(Siw, RejectIsWhatDestroyingTheNewIdMeans) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_EQ(passive.DestroyId(passive_id), 0);
  ExpectReset(active);
}

TEST_F(Siw, RejectIsWhatDestroyingTheListenerMeansForRequestsNobodyFetched) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Prepare(&active_id, &active_qp));
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectQuiet(active);  // the request is queued at the listener
  ASSERT_EQ(passive.DestroyId(listener), 0);
  ExpectReset(active);
}

TEST_F(Siw, BacklogRejectsWhatItHasNoRoomFor) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 2));
  int ids[4] = {}, qp = -1;
  for (int& id : ids) ASSERT_NO_FATAL_FAILURE(Prepare(&id, &qp));
  // The test sends one request after the other. The kernel's iw_cm has as many work entries as the
  // backlog, and silently loses requests that arrive faster than it processes them.
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(active.CmConnect(ids[i], {}), 0);
    ExpectQuiet(active);
  }
  for (int i = 2; i < 4; ++i) {
    ASSERT_EQ(active.CmConnect(ids[i], {}), 0);
    EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_REJECTED, -ECONNRESET).id, ids[i]);
  }
  ExpectQuiet(active);
  for (int i = 0; i < 2; ++i) ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  // Fetched requests no longer count.
  ASSERT_NO_FATAL_FAILURE(Prepare(&active_id, &qp));
  ASSERT_EQ(active.CmConnect(active_id, {}), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(Siw, BacklogZeroIsNoLimitOfOneOrTwo) {
  ASSERT_NO_FATAL_FAILURE(StartListening(RDMA_PS_TCP, 0));
  int id = -1, qp = -1;
  for (int i = 0; i < 6; ++i) {
    ASSERT_NO_FATAL_FAILURE(Prepare(&id, &qp));
    ASSERT_EQ(active.CmConnect(id, {}), 0);
  }
  for (int i = 0; i < 6; ++i) ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}

// ---- disc_*, kill_client, async: connections that end

TEST_F(Siw, DiscActiveEndsBothAndNoTimewaitIsTold) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectBothDisconnected();
  ExpectSilence(active);
  ExpectSilence(passive);
  EXPECT_EQ(active.Disconnect(active_id), 0);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  EXPECT_EQ(active.ResolveAddr(active_id, passive.address(), port), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

TEST_F(Siw, DiscPassiveEndsBoth) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectBothDisconnected();
}

TEST_F(Siw, DiscDestroyOfTheQpEndsBothAndTheIdSaysNothingMore) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active.DestroyCmQp(active_id, active_qp), 0);
  ExpectBothDisconnected();
  ASSERT_EQ(active.DestroyId(active_id), 0);
  ExpectQuiet(passive);
}

TEST_F(Siw, DiscDestroyOfTheListenerLeavesTheConnection) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(passive.DestroyId(listener), 0);
  ExpectQuiet(passive);
  ExpectQuiet(active);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectBothDisconnected();
}

TEST_F(Siw, DiscTrafficFlushesTheReceivesOfBoth) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_NO_FATAL_FAILURE(PostReceives(active, active_qp, 100));
  ASSERT_NO_FATAL_FAILURE(PostReceives(passive, passive_qp, 200));
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectFlushed(active, active_qp, 100);
  ExpectFlushed(passive, passive_qp, 200);  // the passive program has made no call
  ExpectBothDisconnected();
}

TEST_F(Siw, KillClientDisconnectsTheSurvivorAndFlushesIt) {
  Side client{Place::kLocalProcess};
  ASSERT_NO_FATAL_FAILURE(StartListening());
  const int id = client.CreateId();
  ASSERT_EQ(client.ResolveAddr(id, passive.address(), port), 0);
  ExpectEvent(client, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(client.ResolveRoute(id), 0);
  ExpectEvent(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_GE(client.CreateCmQp(id), 0);
  ASSERT_EQ(client.CmConnect(id, {}), 0);
  passive_id = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST).id;
  ASSERT_GE(passive_id, 0);
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(client, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_NO_FATAL_FAILURE(PostReceives(passive, passive_qp, 1));
  client.worker().Kill();
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ExpectFlushed(passive, passive_qp, 1);
  EXPECT_EQ(passive.Disconnect(passive_id), 0);
  ExpectQuiet(passive);
}

TEST_F(Siw, AsyncModifyingTheQpToErrorEndsTheConnection) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(active.Modify(active_qp, attr, IBV_QP_STATE), 0);
  ExpectBothDisconnected();
}

// ---- noqp: ids without a QP, QPs without an id

TEST_F(Siw, NoQpIsEstablishedAtOnceAndRdmaEstablishIsInvalid) {
  ASSERT_EQ(active.Open(), 0);
  ASSERT_EQ(passive.Open(), 0);
  const int ours = active.CreateQp(), theirs = passive.CreateQp();
  ASSERT_GE(ours, 0);
  ASSERT_GE(theirs, 0);
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  constexpr int kMask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;  // rdma_init_qp_attr's
  ASSERT_EQ(active.Modify(ours, attr, kMask), 0);
  ConnectSpec spec(10, 3);
  spec.qp_num = active.AddressOf(ours).qpn;
  ASSERT_EQ(active.CmConnect(active_id, spec), 0);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  passive_id = request.id;
  ASSERT_GE(passive_id, 0);
  ASSERT_EQ(passive.Modify(theirs, attr, kMask), 0);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(passive.Modify(theirs, attr, kMask), 0);
  spec.qp_num = passive.AddressOf(theirs).qpn;
  ASSERT_EQ(passive.Accept(passive_id, spec), 0);
  ExpectPrivateData(ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED), 10, 10, 3);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  ExpectQuiet(passive);

  const Buffer from = Allocate(64), to = Allocate(64);
  const Region here = active.Register(from), there = passive.Register(to);
  FillPattern(from.bytes(), 5);
  ASSERT_EQ(passive.PostReceive(theirs, ReceiveInto(1, to, there)), 0);
  ASSERT_EQ(active.PostSend(ours, SendOf(2, from, here)), 0);
  EXPECT_EQ(active.Poll(ours, Queue::kSend).wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(passive.Poll(theirs, Queue::kReceive).wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(FirstDifference(to.bytes(), 5), -1);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectBothDisconnected();
}

TEST_F(Siw, NoQpCallsInAStateThatIsNotTheirsAreInvalid) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(active.Establish(active_id), EINVAL);
  EXPECT_EQ(passive.Establish(passive_id), EINVAL);
  EXPECT_EQ(passive.Reject(passive_id), EINVAL);
  EXPECT_EQ(active.CmConnect(active_id, {}), EINVAL);
  EXPECT_EQ(active.Listen(active_id), EINVAL);
  EXPECT_EQ(passive.Disconnect(listener), EINVAL);
  EXPECT_EQ(passive.Reject(listener), EINVAL);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

// ---- resolve, ud, mcast

TEST_F(Siw, ResolveYieldsNoPathRecord) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  const IdFields fields = active.FieldsOf(active_id);
  EXPECT_TRUE(fields.has_verbs);
  EXPECT_TRUE(fields.has_pd);
  EXPECT_EQ(fields.port_num, 1);
  EXPECT_EQ(fields.num_paths, 0);
}

TEST_F(Siw, ResolveLeavesTheGidsAndBindingTellsTheDevicesMac) {
  ibv_gid mac{}, none{};
  ibv_context* device = OpenTestDevice();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(ibv_query_gid(device, 1, 0, &mac), 0);
  EXPECT_EQ(ibv_close_device(device), 0);
  const int bound = active.CreateId();
  ASSERT_EQ(active.Bind(bound, LocalAddress(), 0), 0);
  IdFields fields = active.FieldsOf(bound);
  EXPECT_EQ(memcmp(&fields.source_gid, &mac, sizeof mac), 0);
  EXPECT_EQ(memcmp(&fields.destination_gid, &none, sizeof none), 0);
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  fields = active.FieldsOf(active_id);
  EXPECT_EQ(memcmp(&fields.source_gid, &none, sizeof none), 0);
}

TEST_F(Siw, UdResolvesButHasNoQp) {
  active_id = active.CreateId(RDMA_PS_UDP);
  ASSERT_EQ(active.ResolveAddr(active_id, passive.address(), 7), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(active_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active.CreateCmQp(active_id), -EOPNOTSUPP);
}

// ---- calls that Side does not have; all in this process

struct DestroyIdOf {
  void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
};
using Id = std::unique_ptr<rdma_cm_id, DestroyIdOf>;

Id SynchronousId(rdma_port_space space = RDMA_PS_TCP) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, space), 0);
  return Id(id);
}
int BindTo(rdma_cm_id* id, const std::string& address) {
  sockaddr_in at = SocketAddress(address, 0);
  return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at));
}

TEST(SiwCalls, McastIsNotImplemented) {
  const Id id = SynchronousId(RDMA_PS_UDP);
  sockaddr_in group = SocketAddress("239.1.1.1", 0);
  EXPECT_EQ(rdma_join_multicast(id.get(), reinterpret_cast<sockaddr*>(&group), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(BindTo(id.get(), LocalAddress()), 0);
  EXPECT_EQ(rdma_join_multicast(id.get(), reinterpret_cast<sockaddr*>(&group), nullptr), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(rdma_leave_multicast(id.get(), reinterpret_cast<sockaddr*>(&group)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST(SiwCalls, NotifyTakesAnyEventWhereThereIsAConnectionOrAListener) {
  const Id unbound = SynchronousId();
  EXPECT_EQ(rdma_notify(unbound.get(), IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EINVAL);
  const Id listener = SynchronousId();
  ASSERT_EQ(BindTo(listener.get(), LocalAddress()), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  EXPECT_EQ(rdma_notify(listener.get(), IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(rdma_notify(listener.get(), IBV_EVENT_PATH_MIG_ERR), 0);
}

TEST(SiwCalls, InitQpAttrGivesStateRightsAndPortWhateverStateIsAskedFor) {
  const Id id = SynchronousId();
  sockaddr_in to = SocketAddress(RemoteAddress(), 7);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    int mask = 0;
    ASSERT_EQ(rdma_init_qp_attr(id.get(), &attr, &mask), 0);
    EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
    EXPECT_EQ(attr.qp_state, state);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.qp_access_flags, 0u);
  }
}

}  // namespace
}  // namespace rdma_contract
