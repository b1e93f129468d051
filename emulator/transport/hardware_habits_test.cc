// Asynchronous events and flushes of hardware devices that rdma_rxe was never seen to have. Each
// happens once when the profile says so, and never otherwise.
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class HardwareHabits : public ::testing::TestWithParam<bool> {
 protected:
  HardwareHabits() : world(GetParam()) {}

  Profile& ProfileOf(Node& node) { return node.verbs.DeviceByIndex(0)->profile; }
  void MakeQps(Handle srq = 0) {
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.b(), IBV_QPT_RC, 4096, 63, cq_entries, srq);
  }
  std::vector<ibv_event_type> Take(Node& node) {
    std::vector<ibv_event_type> events;
    for (;;) {
      const auto event = node.verbs.TakeAsyncEvent(world.now, kGroup, node.context->handle);
      if (!event) return events;
      if (event->type != IBV_EVENT_CQ_ERR) events.push_back(event->type);
    }
  }
  void Do(Endpoint& e, rxe_send_wr wr, uint32_t bytes) {
    e.Post(wr, {e.Sge(0, bytes)});
    world.Ring(e);
    world.Run();
  }

  World world;
  uint32_t cq_entries = 255;
  Endpoint x{}, y{};
};
INSTANTIATE_TEST_SUITE_P(Hosts, HardwareHabits, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

using Events = std::vector<ibv_event_type>;

// IBTA 10.10.2.3: a responder's fault that no completion reports.
TEST_P(HardwareHabits, AnAccessThatIsDeniedIsToldToTheRespondersProgram) {
  for (const bool raises : {false, true}) {
    SCOPED_TRACE(raises);
    ProfileOf(world.b()).raises_qp_fatal = raises;
    MakeQps();
    world.Join(x, y);
    rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0);
    wr.wr.rdma.rkey ^= 0x300;
    Do(x, wr, 64);
    EXPECT_EQ(x.Sent().at(0).status, uint32_t{IBV_WC_REM_ACCESS_ERR});
    EXPECT_EQ(Take(world.b()), raises ? Events{IBV_EVENT_QP_ACCESS_ERR} : Events{});
  }
}

TEST_P(HardwareHabits, ARequestThatTheQpDoesNotAllowIsToldToTheRespondersProgram) {
  ProfileOf(world.b()).raises_qp_fatal = true;
  MakeQps();
  world.Join(x, y, {.access = 0});
  Do(x, RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), 64);
  EXPECT_EQ(x.Sent().at(0).status, uint32_t{IBV_WC_REM_INV_REQ_ERR});
  EXPECT_EQ(Take(world.b()), Events{IBV_EVENT_QP_REQ_ERR});
}

TEST_P(HardwareHabits, AFaultThatAReceiveTellsOfIsNoEvent) {
  ProfileOf(world.b()).raises_qp_fatal = true;
  MakeQps();
  world.Join(x, y);
  y.PostReceive(1, {y.Sge(0, 8)});
  Do(x, SendWr(IBV_WR_SEND, 1), 64);
  EXPECT_NE(y.Received().at(0).status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(Take(world.b()), Events{});
}

TEST_P(HardwareHabits, ACompletionThatFindsNoRoomIsFatalToTheQp) {
  for (const bool raises : {false, true}) {
    SCOPED_TRACE(raises);
    ProfileOf(world.b()).raises_qp_fatal = raises;
    cq_entries = 1;
    MakeQps();
    world.Join(x, y);
    for (uint64_t i = 0; i < 3; i++) {
      y.PostReceive(i, {y.Sge(0, 64)});
      x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(0, 64)});
    }
    world.Ring(x);
    world.Run();
    EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
    EXPECT_EQ(Take(world.b()), raises ? Events{IBV_EVENT_QP_FATAL} : Events{});
  }
}

// ibv_get_async_event(3): the event of a QP with an SRQ that takes no more receives from it.
TEST_P(HardwareHabits, TheLastWorkOfAQpWithASharedQueueIsTold) {
  for (const bool raises : {false, true}) {
    SCOPED_TRACE(raises);
    ProfileOf(world.b()).raises_last_wqe_reached = raises;
    Node& node = world.b();
    SharedReceiveQueue* srq = *node.verbs.CreateSrq(kGroup, {node.pd->handle, 8, 1, 0, 4});
    MakeQps(srq->handle);
    world.Join(x, y);
    world.SetState(y, IBV_QPS_ERR);
    world.SetState(y, IBV_QPS_ERR);  // the event was raised before
    EXPECT_EQ(Take(node), raises ? Events{IBV_EVENT_QP_LAST_WQE_REACHED} : Events{});
  }
}

TEST_P(HardwareHabits, TheLastWorkOfAQpWithAQueueOfItsOwnIsNoEvent) {
  ProfileOf(world.b()).raises_last_wqe_reached = true;
  MakeQps();
  world.Join(x, y);
  world.SetState(y, IBV_QPS_ERR);
  EXPECT_EQ(Take(world.b()), Events{});
}

// IBTA 12.9.6: the first packet on a QP in RTR.
TEST_P(HardwareHabits, DataBeforeTheQpCanSendEstablishesCommunicationOnce) {
  for (const bool raises : {false, true}) {
    SCOPED_TRACE(raises);
    ProfileOf(world.b()).raises_comm_est = raises;
    MakeQps();
    world.Join(x, y, {.to_rts_b = false});
    for (uint64_t i = 0; i < 2; i++) {
      y.PostReceive(i, {y.Sge(0, 64)});
      Do(x, SendWr(IBV_WR_SEND, i), 64);
    }
    EXPECT_EQ(Take(world.b()), raises ? Events{IBV_EVENT_COMM_EST} : Events{});
  }
}

// IBTA 10.3.1.8 (ERR): receives posted in ERR are flushed. rxe does not flush them (measured).
TEST_P(HardwareHabits, AReceivePostedInErrorIsFlushed) {
  for (const bool flushes : {false, true}) {
    SCOPED_TRACE(flushes);
    ProfileOf(world.b()).flush_receives_posted_in_error = flushes;
    MakeQps();
    world.Join(x, y);
    world.SetState(y, IBV_QPS_ERR);
    y.PostReceive(5, {y.Sge(0, 64)});
    world.Ring(y);
    world.Run();
    const auto received = y.Received();
    ASSERT_EQ(received.size(), flushes ? 1u : 0u);
    if (!flushes) continue;
    EXPECT_EQ(received[0].wr_id, 5u);
    EXPECT_EQ(received[0].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  }
}

}  // namespace
}  // namespace rdmaemu::transport::testing
