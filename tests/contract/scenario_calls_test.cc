// The measured scenarios of single calls: ids without a QP, rdma_init_qp_attr, rdma_notify,
// migration, unacknowledged events, binding. Each suite has its scenario's name.
// (facts: rxe.jsonl, siw.jsonl)
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

struct InitOrder {
  int id;
  ibv_qp_state to;
};
struct InitAnswer {
  int error, mask;
  ibv_qp_attr attr;
};
InitAnswer InitStep(State& state, const InitOrder& order) {
  InitAnswer answer{};
  answer.attr.qp_state = order.to;
  if (rdma_init_qp_attr(state.ids[static_cast<size_t>(order.id)], &answer.attr, &answer.mask) != 0)
    answer.error = errno;
  return answer;
}
struct NotifyOrder {
  int id;
  ibv_event_type event;
};
int NotifyStep(State& state, const NotifyOrder& order) {
  return rdma_notify(state.ids[static_cast<size_t>(order.id)], order.event) == 0 ? 0 : errno;
}
int MigrateToNoneStep(State& state, const int& id) {
  return rdma_migrate_id(state.ids[static_cast<size_t>(id)], nullptr) == 0 ? 0 : errno;
}
// Returns the next event of the id's channel, -1 when the channel is empty.
int NextOnItsOwnStep(State& state, const int& id) {
  rdma_event_channel* channel = state.ids[static_cast<size_t>(id)]->channel;
  pollfd waiting{channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (poll(&waiting, 1, kPatience_ms) <= 0 || rdma_get_cm_event(channel, &event) != 0) return -1;
  const int type = event->event;
  rdma_ack_cm_event(event);
  return type;
}

// ---- noqp

class ScenarioNoqp : public ConnectionTest {
 protected:
  InitAnswer Init(Side& side, int id, ibv_qp_state to) {
    return side.worker().Call(&InitStep, InitOrder{id, to});
  }
  void Respond() {
    ASSERT_NO_FATAL_FAILURE(StartListening());
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
    ConnectSpec spec;
    here = spec.qp_num = ForeignQpn();
    spec.responder_resources = spec.initiator_depth = 4;
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive_id = request.id;
    ASSERT_GE(passive_id, 0);
    there = spec.qp_num = ForeignQpn();
    ASSERT_EQ(passive.Accept(passive_id, spec), 0);
    response = ExpectEvent(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  uint32_t here = 0, there = 0;
  EventCopy response;
};

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

TEST_F(ScenarioNoqp, AttributesAreToBeHadForInitOnceTheAddressIsResolved) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
  const InitAnswer init = Init(active, active_id, IBV_QPS_INIT);
  EXPECT_EQ(init.error, 0);
  EXPECT_EQ(init.mask, kInitMask);
  EXPECT_EQ(init.attr.port_num, 1);
  EXPECT_EQ(init.attr.qp_access_flags, 0u);
}

TEST_F(ScenarioNoqp, AttributesForTheWholeHandshakeAreToBeHadOnBothSides) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  const InitAnswer passive_rtr = Init(passive, passive_id, IBV_QPS_RTR),
                   passive_rts = Init(passive, passive_id, IBV_QPS_RTS),
                   active_rtr = Init(active, active_id, IBV_QPS_RTR),
                   active_rts = Init(active, active_id, IBV_QPS_RTS);
  for (const InitAnswer& rtr : {passive_rtr, active_rtr}) {
    EXPECT_EQ(rtr.error, 0);
    EXPECT_EQ(rtr.mask, kRtrMask);
    EXPECT_EQ(rtr.attr.max_dest_rd_atomic, 4);
    EXPECT_EQ(rtr.attr.min_rnr_timer, 0);
  }
  for (const InitAnswer& rts : {passive_rts, active_rts}) {
    EXPECT_EQ(rts.error, 0);
    EXPECT_EQ(rts.mask, kRtsMask);
    EXPECT_EQ(rts.attr.max_rd_atomic, 4);
    EXPECT_EQ(rts.attr.retry_cnt, 7);
    EXPECT_EQ(rts.attr.rnr_retry, 7);
  }
  EXPECT_EQ(passive_rtr.attr.dest_qp_num, here);
  EXPECT_EQ(active_rtr.attr.dest_qp_num, there);
  EXPECT_EQ(passive_rtr.attr.rq_psn, active_rts.attr.sq_psn);
  EXPECT_EQ(active_rtr.attr.rq_psn, passive_rts.attr.sq_psn);
  EXPECT_EQ(active_rts.attr.timeout, passive_rts.attr.timeout);
}

TEST_F(ScenarioNoqp, TheResponseShowsWhatTheAcceptSaid) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  EXPECT_EQ(request.conn.qp_num, here);
  EXPECT_EQ(response.conn.qp_num, there);
  EXPECT_EQ(response.conn.responder_resources, 4);
  EXPECT_EQ(response.conn.initiator_depth, 4);
  EXPECT_EQ(response.private_data_len, 196);
}

TEST_F(ScenarioNoqp, AQpThatIsNotTheIdsIsNotTouchedByADisconnect) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  ASSERT_EQ(active.Establish(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(active.Disconnect(active_id), 0);
  ExpectEvent(passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive.Disconnect(passive_id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_DISCONNECTED);
}

// ---- notify

class ScenarioNotify : public ScenarioNoqp {
 protected:
  int Notify(Side& side, int id, ibv_event_type event) {
    return side.worker().Call(&NotifyStep, NotifyOrder{id, event});
  }
};

TEST_F(ScenarioNotify, DataBeforeTheRtuEstablishesThePassiveSide) {
  ASSERT_NO_FATAL_FAILURE(Respond());
  ExpectQuiet(passive);
  ASSERT_EQ(Notify(passive, passive_id, IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED).id, passive_id);
  // The RTU then has no effect.
  ASSERT_EQ(active.Establish(active_id), 0);
  ExpectQuiet(passive);
  EXPECT_EQ(Notify(passive, passive_id, IBV_EVENT_COMM_EST), EISCONN);
}

TEST_F(ScenarioNotify, AConnectionIsConnected) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  EXPECT_EQ(Notify(active, active_id, IBV_EVENT_COMM_EST), EISCONN);
  EXPECT_EQ(Notify(passive, passive_id, IBV_EVENT_COMM_EST), EISCONN);
  ExpectQuiet(active);
  ExpectQuiet(passive);
}

TEST_F(ScenarioNotify, AnIdWithoutAConnectionHasNothingToBeNotifiedOf) {
  const int unbound = active.CreateId();
  EXPECT_EQ(Notify(active, unbound, IBV_EVENT_COMM_EST), EINVAL);
  ASSERT_NO_FATAL_FAILURE(Resolve(&active_id, RDMA_PS_TCP, 9));
  EXPECT_EQ(Notify(active, active_id, IBV_EVENT_COMM_EST), EINVAL);
}

// ---- migrate

using ScenarioMigrate = ConnectionTest;

TEST_F(ScenarioMigrate, APendingEventMovesToTheChannelOfASynchronousId) {
  const int id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1), 0);
  ASSERT_EQ(active.worker().Call(&MigrateToNoneStep, id), 0);
  EXPECT_EQ(active.worker().Call(&NextOnItsOwnStep, id), RDMA_CM_EVENT_ADDR_RESOLVED);
  ExpectQuiet(active);
}

TEST_F(ScenarioMigrate, ASynchronousIdMayBecomeAsynchronousAgain) {
  const int other = active.CreateId();  // this id has the channel
  ASSERT_GE(other, 0);
  const int id = active.CreateSyncId();
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1), 0);
  EXPECT_EQ(active.FieldsOf(id).event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.Migrate(id, false), 0);
  EXPECT_EQ(active.FieldsOf(id).event, -1);
  ASSERT_EQ(active.ResolveRoute(id), 0);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED).id, id);
}

TEST_F(ScenarioMigrate, ToTheSameChannelIsFine) {
  const int id = active.CreateId();
  EXPECT_EQ(active.Migrate(id, false), 0);
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1), 0);
  EXPECT_EQ(active.Migrate(id, false), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
}

// ---- destroy_unacked, migrate: calls that wait for an acknowledgement

struct OwnChannel {
  OwnChannel() : channel(rdma_create_event_channel()) {}
  ~OwnChannel() { rdma_destroy_event_channel(channel); }
  rdma_cm_id* NewId() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    return id;
  }
  rdma_cm_event* Next() {
    rdma_cm_event* event = nullptr;
    return rdma_get_cm_event(channel, &event) == 0 ? event : nullptr;
  }
  rdma_cm_event* AskForAddress(rdma_cm_id* id, uint16_t port = 1) {
    sockaddr_in to = SocketAddress(LocalAddress(), port);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
    return Next();
  }
  rdma_event_channel* channel;
};

// Runs `call` in a thread and checks that it blocks until `release`.
template <typename Call, typename Release>
void ExpectToWaitFor(Call call, Release release) {
  std::atomic<bool> done = false;
  std::thread thread([&] {
    call();
    done = true;
  });
  poll(nullptr, 0, kQuiet_ms);
  EXPECT_FALSE(done);
  release();
  thread.join();
}

TEST(ScenarioDestroyUnacked, AnIdWaitsForTheAcknowledgementOfItsEvents) {
  OwnChannel own;
  rdma_cm_id* id = own.NewId();
  rdma_cm_event* event = own.AskForAddress(id);
  ASSERT_NE(event, nullptr);
  ExpectToWaitFor([&] { EXPECT_EQ(rdma_destroy_id(id), 0); },
                  [&] { EXPECT_EQ(rdma_ack_cm_event(event), 0); });
}

TEST(ScenarioDestroyUnacked, ARequestHoldsTheListenerAndNotTheChild) {
  OwnChannel own;
  rdma_cm_id* listener = own.NewId();
  sockaddr_in at = SocketAddress(LocalAddress(), 0);
  ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&at)), 0);
  ASSERT_EQ(rdma_listen(listener, 4), 0);
  Side active(Place::kThisProcess);
  const int id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), ntohs(rdma_get_src_port(listener))), 0);
  ASSERT_EQ(active.NextEvent().event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(id), 0);
  ASSERT_EQ(active.NextEvent().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_GE(active.CreateCmQp(id), 0);
  ASSERT_EQ(active.CmConnect(id, {}), 0);
  rdma_cm_event* request = own.Next();
  ASSERT_NE(request, nullptr);
  ASSERT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(rdma_destroy_id(request->id), 0);
  ExpectToWaitFor([&] { EXPECT_EQ(rdma_destroy_id(listener), 0); },
                  [&] { EXPECT_EQ(rdma_ack_cm_event(request), 0); });
}

TEST(ScenarioDestroyUnacked, NothingIsNoEventToAcknowledge) {
  EXPECT_EQ(rdma_ack_cm_event(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(ScenarioMigrateUnacked, MigrationWaitsForTheAcknowledgementOfTheIdsEvents) {
  OwnChannel from, to;
  rdma_cm_id* id = from.NewId();
  rdma_cm_event* event = from.AskForAddress(id);
  ASSERT_NE(event, nullptr);
  ExpectToWaitFor([&] { EXPECT_EQ(rdma_migrate_id(id, to.channel), 0); },
                  [&] { EXPECT_EQ(rdma_ack_cm_event(event), 0); });
  EXPECT_EQ(id->channel, to.channel);
  ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
  rdma_cm_event* next = to.Next();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(rdma_ack_cm_event(next), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// ---- sync

struct SyncAnswer {
  int result, error, event, status;
};
SyncAnswer SyncConnectStep(State& state, const int& id) {
  rdma_cm_id* at = state.ids[static_cast<size_t>(id)];
  errno = 0;
  const int result = rdma_connect(at, nullptr);
  return {result, errno, at->event ? static_cast<int>(at->event->event) : -1,
          at->event ? at->event->status : 0};
}

using ScenarioSync = ConnectionTest;

TEST_F(ScenarioSync, AConnectWaitsForTheAnswerAndKeepsIt) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  Side client(Place::kLocalProcess);
  const int id = client.CreateSyncId();
  ASSERT_EQ(client.ResolveAddr(id, passive.address(), port), 0);
  ASSERT_EQ(client.ResolveRoute(id), 0);
  ASSERT_GE(client.CreateCmQp(id), 0);
  client.worker().Begin(&SyncConnectStep, id);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  passive_id = request.id;
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  const SyncAnswer answer = client.worker().Finish<SyncAnswer>();
  EXPECT_EQ(answer.result, 0);
  EXPECT_EQ(answer.event, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(ScenarioSync, AConnectThatIsRejectedAnswersConnectionRefused) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  Side client(Place::kLocalProcess);
  const int id = client.CreateSyncId();
  ASSERT_EQ(client.ResolveAddr(id, passive.address(), port), 0);
  ASSERT_EQ(client.ResolveRoute(id), 0);
  ASSERT_GE(client.CreateCmQp(id), 0);
  client.worker().Begin(&SyncConnectStep, id);
  request = ExpectEvent(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(passive.Reject(request.id, 4, 17), 0);
  const SyncAnswer answer = client.worker().Finish<SyncAnswer>();
  EXPECT_EQ(answer.result, -1);
  EXPECT_EQ(answer.error, ECONNREFUSED);
  EXPECT_EQ(answer.event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(answer.status, 28);
}

// ---- bind

using ScenarioBind = ConnectionTest;

TEST_F(ScenarioBind, PortZeroGivesEachIdAPortOfItsOwn) {
  const int a = active.CreateId(), b = active.CreateId();
  ASSERT_EQ(active.Bind(a, LocalAddress(), 0), 0);
  ASSERT_EQ(active.Bind(b, LocalAddress(), 0), 0);
  EXPECT_NE(active.PortOf(a), 0);
  EXPECT_NE(active.PortOf(a), active.PortOf(b));
}

TEST_F(ScenarioBind, AListenersPortIsNotToBeBoundAgainByAnyName) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  EXPECT_EQ(passive.Bind(passive.CreateId(), passive.address(), port), EADDRINUSE);
  EXPECT_EQ(passive.Bind(passive.CreateId(), "0.0.0.0", port), EADDRNOTAVAIL);
  const int other_space = passive.CreateId(RDMA_PS_UDP);
  EXPECT_EQ(passive.Bind(other_space, passive.address(), port), 0);
  EXPECT_EQ(passive.Listen(other_space), 0);
}

TEST_F(ScenarioBind, ReuseIsNoUseBesideAListenerThatDoesNotShare) {
  ASSERT_NO_FATAL_FAILURE(StartListening());
  const int b = passive.CreateId();
  ASSERT_EQ(passive.SetReuse(b, 1), 0);
  EXPECT_EQ(passive.Bind(b, passive.address(), port), EADDRINUSE);
}

TEST_F(ScenarioBind, OptionsAreTakenAtEveryStepOfAnId) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, LocalAddress(), 0), 0);
  EXPECT_EQ(active.SetReuse(id, 1), 0);
  ASSERT_EQ(active.ResolveAddr(id, LocalAddress(), 1), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(active.ResolveRoute(id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 8, 1), 0);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 1), 0);
  EXPECT_EQ(active.SetReuse(id, 1), 0);
}

TEST_F(ScenarioBind, ANegativeBacklogListens) {
  const int id = passive.CreateId();
  ASSERT_EQ(passive.Bind(id, passive.address(), 0), 0);
  EXPECT_EQ(passive.Listen(id, -1), 0);
}

}  // namespace
}  // namespace rdma_contract
