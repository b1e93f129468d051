// A process that is killed at any point of a connection leaves no objects behind. The survivor gets
// the same events as from the kernel and never blocks for ever.
#include <cerrno>

#include "tests/contract/support/command.h"
#include "tests/contract/support/connection.h"

namespace rdma_contract {
namespace {

// Either side may die, so both are processes. The survivor's calls return its events.
class Survivor : public testing::Test {
 protected:
  void TearDown() override {
    active.reset();
    passive.reset();
    if (OnTheEmulator()) {
      EXPECT_TRUE(HostsAreEmpty(kPatience_ms)) << HostsJson();
    }
  }
  void Listen() {
    listener = passive->CreateId();
    ASSERT_EQ(passive->Bind(listener, passive->address(), 0), 0);
    ASSERT_EQ(passive->Listen(listener), 0);
    port = static_cast<uint16_t>(passive->PortOf(listener));
  }
  void ResolveAddress(Side& side, int* id) {
    *id = side.CreateId();
    ASSERT_GE(*id, 0);
    ASSERT_EQ(side.ResolveAddr(*id, passive_address, port), 0);
    ASSERT_EQ(side.NextEvent().event, RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  void Resolve(Side& side, int* id) {
    ASSERT_NO_FATAL_FAILURE(ResolveAddress(side, id));
    ASSERT_EQ(side.ResolveRoute(*id), 0);
    ASSERT_EQ(side.NextEvent().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  void Connect(Side& side, int* id) {
    ASSERT_NO_FATAL_FAILURE(Resolve(side, id));
    active_qp = side.CreateCmQp(*id);
    ASSERT_GE(active_qp, 0);
    ASSERT_EQ(side.CmConnect(*id, {}), 0);
  }
  void TakeRequest() {
    const EventCopy request = passive->NextEvent();
    ASSERT_TRUE(request.found);
    ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
    passive_id = request.id;
  }
  void Accept() {
    passive_qp = passive->CreateCmQp(passive_id);
    ASSERT_GE(passive_qp, 0);
    ASSERT_EQ(passive->Accept(passive_id, {}), 0);
  }
  void Establish() {
    ASSERT_NO_FATAL_FAILURE(Listen());
    ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
    ASSERT_NO_FATAL_FAILURE(TakeRequest());
    ASSERT_NO_FATAL_FAILURE(Accept());
    ASSERT_EQ(active->NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(passive->NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
  }
  static void Expect(Side& side, rdma_cm_event_type type, int status = 0) {
    const EventCopy event = side.NextEvent();
    ASSERT_TRUE(event.found) << "no " << rdma_event_str(type);
    EXPECT_EQ(event.event, type) << Describe(event);
    EXPECT_EQ(event.status, status) << Describe(event);
  }
  // The listener still accepts a new client.
  void NewcomerIsServed() {
    Side newcomer(Place::kLocalProcess);
    int id = -1;
    ASSERT_NO_FATAL_FAILURE(Connect(newcomer, &id));
    ASSERT_NO_FATAL_FAILURE(TakeRequest());
    ASSERT_NO_FATAL_FAILURE(Accept());
    EXPECT_EQ(newcomer.NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(passive->NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);
  }

  std::unique_ptr<Side> active = std::make_unique<Side>(Place::kLocalProcess);
  std::unique_ptr<Side> passive = std::make_unique<Side>(Place::kPeersMachine);
  const std::string passive_address = RemoteAddress();
  int listener = -1, active_id = -1, passive_id = -1, active_qp = -1, passive_qp = -1;
  uint16_t port = 0;
};

TEST_F(Survivor, ListenerDies) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  passive->worker().Kill();
  if (OnTheEmulator()) {
    ASSERT_TRUE(HostsAreEmpty(kPatience_ms));
  }
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  Expect(*active, RDMA_CM_EVENT_REJECTED, 8);
}

TEST_F(Survivor, ListenersPortIsFreeAgain) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  passive->worker().Kill();
  if (OnTheEmulator()) {
    ASSERT_TRUE(HostsAreEmpty(kPatience_ms));
  }
  passive = std::make_unique<Side>(Place::kPeersMachine);
  listener = passive->CreateId();
  EXPECT_EQ(passive->Bind(listener, passive->address(), port), 0);
}

TEST_F(Survivor, ActiveSideDiesWithItsAddressResolved) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(ResolveAddress(*active, &active_id));
  active->worker().Kill();
  EXPECT_FALSE(passive->NextEvent(kQuiet_ms).found);
  NewcomerIsServed();
}

TEST_F(Survivor, ActiveSideDiesWithItsRouteResolvedAndAQp) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Resolve(*active, &active_id));
  ASSERT_GE(active->CreateCmQp(active_id), 0);
  active->worker().Kill();
  EXPECT_FALSE(passive->NextEvent(kQuiet_ms).found);
  NewcomerIsServed();
}

TEST_F(Survivor, ActiveSideDiesBeforeItsRequestIsTaken) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  active->worker().Kill();
  // The kernel still delivers the request. Accepting it fails once the CM has received the active
  // side's message about its end.
  const EventCopy request = passive->NextEvent();
  EXPECT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
  EXPECT_EQ(passive->DestroyId(request.id), 0);
}

TEST_F(Survivor, ActiveSideDiesBeforeItIsAnswered) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  ASSERT_NO_FATAL_FAILURE(TakeRequest());
  active->worker().Kill();
  EXPECT_FALSE(passive->NextEvent(kQuiet_ms).found);
  EXPECT_EQ(passive->Accept(passive_id, {}), EINVAL);
}

TEST_F(Survivor, PassiveSideDiesHoldingARequest) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  ASSERT_NO_FATAL_FAILURE(TakeRequest());
  passive->worker().Kill();
  Expect(*active, RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(active->StateOf(active_qp), IBV_QPS_ERR);
}

TEST_F(Survivor, PassiveSideDiesRightAfterAccepting) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  ASSERT_NO_FATAL_FAILURE(TakeRequest());
  ASSERT_NO_FATAL_FAILURE(Accept());
  passive->worker().Kill();
  // The survivor gets an event of the end, whether the connection was established or not.
  EventCopy event = active->NextEvent();
  ASSERT_TRUE(event.found);
  if (event.event == RDMA_CM_EVENT_ESTABLISHED) event = active->NextEvent();
  EXPECT_TRUE(event.event == RDMA_CM_EVENT_REJECTED || event.event == RDMA_CM_EVENT_DISCONNECTED ||
              event.event == RDMA_CM_EVENT_CONNECT_ERROR)
      << Describe(event);
}

TEST_F(Survivor, ActiveSideDiesWithTheAnswerUnfetched) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  ASSERT_NO_FATAL_FAILURE(Connect(*active, &active_id));
  ASSERT_NO_FATAL_FAILURE(TakeRequest());
  ASSERT_NO_FATAL_FAILURE(Accept());
  active->worker().Kill();
  const EventCopy event = passive->NextEvent();
  ASSERT_TRUE(event.found);
  EXPECT_TRUE(event.event == RDMA_CM_EVENT_REJECTED || event.event == RDMA_CM_EVENT_DISCONNECTED)
      << Describe(event);
}

TEST_F(Survivor, ActiveSideDiesConnected) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  active->worker().Kill();
  Expect(*passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive->StateOf(passive_qp), IBV_QPS_RTS) << "as on the kernel's rxe";
  NewcomerIsServed();
}

TEST_F(Survivor, PassiveSideDiesConnected) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  passive->worker().Kill();
  Expect(*active, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(active->StateOf(active_qp), IBV_QPS_RTS);
}

TEST_F(Survivor, PassiveSideDiesWithWorkUnderWay) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  const Buffer from = Allocate(1 << 20), to = Allocate(1 << 20);
  const Region f = active->Register(from), t = passive->Register(to);
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_EQ(active->PostSend(active_qp, WriteTo(i, from, f, to.address(), t.rkey)), 0);
  passive->worker().Kill();
  Expect(*active, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(active->Disconnect(active_id), 0);
  // Outstanding requests are flushed in order: eight completions in all.
  bool failed = false;
  for (uint64_t i = 0; i < 8; ++i) {
    const Completion completion = active->Poll(active_qp, Queue::kSend);
    ASSERT_TRUE(completion.found) << i;
    EXPECT_EQ(completion.wc.wr_id, i);
    failed = failed || completion.wc.status != IBV_WC_SUCCESS;
    EXPECT_EQ(completion.wc.status == IBV_WC_SUCCESS, !failed);
  }
}

TEST_F(Survivor, SenderDiesInTheMiddleOfAMessage) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  const Buffer from = Allocate(8 << 20), to = Allocate(8 << 20);
  const Region f = active->Register(from), t = passive->Register(to);
  ASSERT_EQ(passive->PostReceive(passive_qp, ReceiveInto(1, to, t)), 0);
  ASSERT_EQ(active->PostSend(active_qp, SendOf(2, from, f)), 0);
  active->worker().Kill();
  Expect(*passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive->Disconnect(passive_id), 0);
  const Completion received = passive->Poll(passive_qp, Queue::kReceive);
  ASSERT_TRUE(received.found);
  EXPECT_TRUE(received.wc.status == IBV_WC_SUCCESS || received.wc.status == IBV_WC_WR_FLUSH_ERR)
      << Describe(received);
  EXPECT_TRUE(GuardsIntact());
}

TEST_F(Survivor, DiesRightAfterDisconnecting) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active->Disconnect(active_id), 0);
  active->worker().Kill();
  Expect(*passive, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive->Disconnect(passive_id), 0);
}

TEST_F(Survivor, DiesInTimewait) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(active->Disconnect(active_id), 0);
  Expect(*passive, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(passive->Disconnect(passive_id), 0);
  Expect(*active, RDMA_CM_EVENT_DISCONNECTED);
  active->worker().Kill();
  Expect(*passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(Survivor, ADeadPeersMemoryIsNeverWritten) {
  // A QP pair without rdma_cm: only the transport detects the death.
  const Pair pair = ConnectPair(*active, *passive, {}, {.timeout = 8, .retry = 2});
  const Buffer from = Allocate(4096), to = Allocate(4096);
  const Region f = active->Register(from), t = passive->Register(to);
  passive->worker().Kill();
  ASSERT_EQ(active->PostSend(pair.local, WriteTo(1, from, f, to.address(), t.rkey)), 0);
  const Completion completion = active->Poll(pair.local, Queue::kSend);
  EXPECT_EQ(completion.wc.status, IBV_WC_RETRY_EXC_ERR) << Describe(completion);
}

}  // namespace
}  // namespace rdma_contract
