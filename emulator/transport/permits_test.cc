// Permits for programs to execute WRITEs and READs themselves: when the host grants and ends them,
// and how it counts what was executed.
#include "emulator/transport/permits.h"

#include "emulator/transport/copy_jobs_for_test.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kBytes = 2500;  // three packets of 1024 bytes

class PermitsTest : public CopyJobsTest {
 protected:
  PermitsTest() { world.a.permits_execution = true; }

  void Send(const rxe_send_wr& wr, const std::vector<rxe_sge>& sges) {
    x.Post(wr, sges);
    world.Ring(x);
    world.Run();
  }
  void Send(ibv_wr_opcode opcode, uint64_t wr_id, uint32_t bytes = kBytes) {
    Send(RdmaWr(opcode, wr_id, y, 0), {x.Sge(0, bytes)});
  }
  Permit PermitOf(const Endpoint& endpoint) { return endpoint.qp->control->permit.Read(); }
  // A completed WRITE, and the permit that follows.
  Permit Granted() {
    Send(IBV_WR_RDMA_WRITE, 1);
    ExpectSent({1});
    const Permit permit = PermitOf(x);
    EXPECT_NE(permit.number, 0u);
    return permit;
  }
  // Acts as a program that executes requests of kBytes.
  void Execute(ibv_wr_opcode opcode, uint64_t count) {
    Executed& all = x.qp->control->executed;
    Executed::Requests& kind = opcode == IBV_WR_RDMA_READ ? all.reads : all.writes;
    for (uint64_t i = 0; i < count; i++) kind.Add(kBytes, 1024);
    if (opcode == IBV_WR_RDMA_WRITE) std::memcpy(y.buffer.data(), x.buffer.data(), kBytes);
  }
};

TEST_F(PermitsTest, ACompletedRequestPermitsItsLike) {
  const Permit permit = Granted();
  EXPECT_EQ(permit.index, x.qp->send_ring.Producer());
  EXPECT_EQ(permit.pid, 4711u);
  EXPECT_EQ(permit.mtu_bytes, 1024u);
  EXPECT_TRUE(permit.own.Covers(x.mr->lkey, x.At(0), 4 * kSize, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_TRUE(permit.other.Covers(y.mr->rkey, y.At(4 * kSize - 1), 1,
                                  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(permit.other.AddressOf(y.At(100)), y.At(100));
  EXPECT_EQ(PermitOf(y).number, 0u) << "it has sent nothing";
}

TEST_F(PermitsTest, APermitCoversItsRegionExactly) {
  const PermittedRegion other = Granted().other;
  const uint32_t key = y.mr->rkey, right = IBV_ACCESS_REMOTE_WRITE;
  EXPECT_TRUE(other.Covers(key, y.At(0), 4 * kSize, right));
  EXPECT_FALSE(other.Covers(key, y.At(0), 4 * kSize + 1, right));
  EXPECT_FALSE(other.Covers(key, y.At(0) - 1, 1, right));
  EXPECT_FALSE(other.Covers(key, y.At(4 * kSize), 1, right));
  EXPECT_FALSE(other.Covers(key, UINT64_MAX, 2, right));
  EXPECT_FALSE(other.Covers(key + 1, y.At(0), 1, right));
  EXPECT_FALSE(other.Covers(key, y.At(0), 1, IBV_ACCESS_REMOTE_ATOMIC));
}

TEST_F(PermitsTest, ThereIsNoPermitForOtherRequests) {
  for (uint64_t i = 1; i <= 2; i++) y.PostReceive(i, {y.Sge(0, kSize)});
  Send(SendWr(IBV_WR_SEND, 1), {x.Sge(0, kBytes)});
  EXPECT_EQ(PermitOf(x).number, 0u);
  Send(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 2, y, 0), {x.Sge(0, kBytes)});
  EXPECT_EQ(PermitOf(x).number, 0u);
  Send(RdmaWr(IBV_WR_RDMA_WRITE, 3, y, 0), {x.Sge(0, 8), x.Sge(8, 8)});
  EXPECT_EQ(PermitOf(x).number, 0u) << "two SGEs";
  Send(RdmaWr(IBV_WR_RDMA_WRITE, 4, y, 0), {});
  EXPECT_EQ(PermitOf(x).number, 0u) << "no bytes";
  Send(IBV_WR_RDMA_WRITE, 5, kMaxPermittedBytes + 1);
  EXPECT_EQ(PermitOf(x).number, 0u);
  Send(IBV_WR_RDMA_WRITE, 6, kMaxPermittedBytes);
  EXPECT_NE(PermitOf(x).number, 0u);
  ExpectSent({1, 2, 3, 4, 5, 6});
}

TEST_F(PermitsTest, InlineDataNeedsNoRegion) {
  Send(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE), {x.Sge(0, 8)});
  EXPECT_NE(PermitOf(x).number, 0u);
  EXPECT_EQ(PermitOf(x).own.key, 0u);
}

TEST_F(PermitsTest, ThereIsNoPermitWhileTheHostHasToSeeEachRequest) {
  world.a.permits_execution = false;
  Send(IBV_WR_RDMA_WRITE, 1);
  EXPECT_EQ(PermitOf(x).number, 0u);
  world.a.permits_execution = true;
  world.a.trace.keep_packets = true;
  Send(IBV_WR_RDMA_WRITE, 2);
  EXPECT_EQ(PermitOf(x).number, 0u);
  world.a.trace.keep_packets = false;
  world.a.memory.pids[kProcess] = 0;  // the system denies access
  Send(IBV_WR_RDMA_WRITE, 3);
  EXPECT_EQ(PermitOf(x).number, 0u);
}

TEST_F(PermitsTest, ThereIsNoPermitWhileARequestIsOutstanding) {
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0), {x.Sge(0, kBytes)});
  world.Ring(x);
  world.a.engine.Take(world.now);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 0), {x.Sge(0, kBytes)});
  world.a.engine.Deliver(world.now);
  EXPECT_EQ(PermitOf(x).number, 0u) << "the second one is in the queue";
  world.Ring(x);
  world.Run();
  EXPECT_NE(PermitOf(x).number, 0u);
}

// A program could otherwise see the completion of a later request first.
TEST_F(PermitsTest, TheCompletionIsVisibleBeforeThePermit) {
  const CompletionBatch::Scope batch(world.a.verbs.completions());
  Send(IBV_WR_RDMA_WRITE, 1);
  EXPECT_NE(PermitOf(x).number, 0u);
  ExpectSent({1});
}

TEST_F(PermitsTest, RightsOfTheConnectionCount) {
  for (Endpoint* each : {&x, &y}) world.SetState(*each, IBV_QPS_RESET);
  world.Join(x, y, {.rd_atomic = 0, .access = IBV_ACCESS_REMOTE_WRITE});
  const Permit permit = Granted();
  EXPECT_EQ(permit.other.access, uint32_t{IBV_ACCESS_REMOTE_WRITE});
}

TEST_F(PermitsTest, ExecutedRequestsCountAsIfTheHostHadExecutedThem) {
  const auto all = [this] {
    const EngineCounters& engine = world.a.engine.counters();
    const auto& device = x.qp->device->counters;
    return std::vector<uint64_t>{engine.messages_sent, engine.bytes_sent, engine.local_packets,
                                 device.sent_pkts,     device.rcvd_pkts,  device.duplicate_request};
  };
  Granted();
  const auto begin = all();
  for (uint64_t i = 0; i < 3; i++) Send(IBV_WR_RDMA_WRITE, 10 + i);
  for (uint64_t i = 0; i < 2; i++) Send(IBV_WR_RDMA_READ, 20 + i);
  const auto by_host = all();
  ASSERT_NE(PermitOf(x).number, 0u);
  Execute(IBV_WR_RDMA_WRITE, 3);
  Execute(IBV_WR_RDMA_READ, 2);
  const auto by_program = all();
  EXPECT_EQ(Difference(by_program, by_host), Difference(by_host, begin));
  // The connection goes on behind them.
  x.Sent();
  Send(IBV_WR_RDMA_WRITE, 30);
  Send(IBV_WR_RDMA_READ, 31);
  ExpectSent({30, 31});
  EXPECT_EQ(Difference(all(), by_program)[5], 0u);
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

TEST_F(PermitsTest, APostedRequestFollowsTheExecutedOnes) {
  Granted();
  Execute(IBV_WR_RDMA_WRITE, 5);
  y.PostReceive(7, {y.Sge(kSize, kSize)});
  Send(SendWr(IBV_WR_SEND, 2), {x.Sge(0, kBytes)});
  ExpectSent({2});
  EXPECT_EQ(y.Received().size(), 1u);
  EXPECT_EQ(PermitOf(x).number, 0u) << "until the next WRITE has completed";
  EXPECT_EQ(world.a.engine.counters().messages_sent, 7u);
}

// Someone may read the counters while the program counts.
TEST_F(PermitsTest, ARequestMayBeCountedInParts) {
  Granted();
  Executed& all = x.qp->control->executed;
  all.writes.count++;
  EXPECT_EQ(world.a.engine.counters().messages_sent, 2u);
  all.writes.bytes += kBytes;
  all.writes.ends += 2;
  EXPECT_EQ(world.a.engine.counters().bytes_sent, 2u * kBytes);
  all.writes.packets += 3;
  world.a.engine.CountExecuted();
  Send(IBV_WR_RDMA_WRITE, 2);
  ExpectSent({2});
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

TEST_F(PermitsTest, EachPermitHasItsOwnNumber) {
  const uint32_t first = Granted().number;
  EXPECT_NE(Granted().number, first);
}

TEST_F(PermitsTest, AFalseNumberOfExecutedRequestsHarmsOnlyItsProgram) {
  Granted();
  x.qp->control->executed.writes = {UINT64_MAX, UINT64_MAX, UINT64_MAX, 1, 1};
  x.qp->control->executed.reads = {1, UINT64_MAX, 0, UINT64_MAX, 0};
  EXPECT_LT(world.a.engine.counters().bytes_sent, uint64_t{1} << 42);
  Endpoint u = world.Make(world.a, IBV_QPT_RC, kSize), v = world.Make(world.a, IBV_QPT_RC, kSize);
  world.Join(u, v);
  u.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, v, 0), {u.Sge(0, kBytes)});
  world.Ring(u);
  world.Run();
  EXPECT_EQ(u.Sent().size(), 1u);
}

// ---- the end of a permit

TEST_F(PermitsTest, WhatRevokesARightEndsThePermits) {
  const auto ends = [this](const char* what, const std::function<void()>& change) {
    Granted();
    change();
    EXPECT_EQ(PermitOf(x).number, 0u) << what;
  };
  Endpoint other = world.Make(world.a, IBV_QPT_RC, kSize);
  ends("the end of a region",
       [&] { EXPECT_TRUE(world.a.verbs.DeregMr(kGroup, other.mr->handle)); });
  ends("attributes of the peer", [&] {
    ibv_qp_attr attr{};
    attr.min_rnr_timer = 3;
    world.Modify(y, attr, IBV_QP_MIN_RNR_TIMER);
  });
  ends("the rights of the peer", [&] {
    ibv_qp_attr attr{};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    world.Modify(y, attr, IBV_QP_ACCESS_FLAGS);
  });
  ends("a rule, a capture or a changed device", [&] { world.a.engine.EndPermits(); });
  ends("a paused host", [&] { world.a.engine.StopCopies(); });
  ends("the peer's error", [&] { world.SetState(y, IBV_QPS_ERR); });
}

TEST_F(PermitsTest, ADrainingQueueHasNoPermit) {
  Granted();
  world.SetState(x, IBV_QPS_SQD);
  EXPECT_EQ(PermitOf(x).number, 0u);
}

TEST_F(PermitsTest, ASecondProcessOfTheProgramEndsThePermits) {
  Granted();
  world.a.verbs.ProcessJoined(kGroup, ProcessId{9});
  EXPECT_EQ(PermitOf(x).number, 0u);
  Send(IBV_WR_RDMA_WRITE, 2);
  ExpectSent({2});
  EXPECT_EQ(PermitOf(x).number, 0u);
}

TEST_F(PermitsTest, WhatWasExecutedBeforeTheEndCounts) {
  Granted();
  Execute(IBV_WR_RDMA_WRITE, 4);
  world.a.engine.EndPermits();
  EXPECT_EQ(world.a.engine.counters().messages_sent, 5u);
  Send(IBV_WR_RDMA_WRITE, 2);
  ExpectSent({2});
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

TEST_F(PermitsTest, TheEndAwaitsACopyThatHasBegun) {
  Granted();
  jobs->busy = 4712;
  jobs->executes = 1;
  int moments = 0;
  world.a.memory.meanwhile = [&] {
    if (++moments == 3) jobs->executes = jobs->busy = 0;
  };
  const uint32_t recalls = jobs->recalls;
  world.a.engine.EndPermits();
  EXPECT_EQ(moments, 3);
  EXPECT_EQ(jobs->recalls, recalls) << "copies of other threads go on";
}

TEST_F(PermitsTest, AStoppedThreadBeginsNoCopyAfterTheEnd) {
  Granted();
  jobs->busy = 4712;
  jobs->executes = 1;
  world.a.memory.threads = CopyState::kElsewhere;
  const uint32_t recalls = jobs->recalls;
  world.a.engine.EndPermits();
  EXPECT_NE(jobs->recalls, recalls);
  EXPECT_EQ(world.a.memory.looked_at, std::vector<uint32_t>{4712});
  EXPECT_EQ(world.a.memory.late_copies, 0);
}

TEST_F(PermitsTest, TheUserIsToldOfAThreadThatIsHeldInItsCopy) {
  Granted();
  jobs->busy = 4712;
  jobs->executes = 1;
  world.a.engine.EndPermits();
  EXPECT_EQ(world.a.memory.late_copies, 1);
}

TEST_F(PermitsTest, ThereIsALimit) {
  std::vector<Endpoint> all;
  for (size_t i = 0; i <= Permits::kMaxPermits; i++) {
    Endpoint from = world.Make(world.a, IBV_QPT_RC, 64, 3, 3);
    Endpoint to = world.Make(world.a, IBV_QPT_RC, 64, 3, 3);
    world.Join(from, to);
    all.push_back(std::move(from));
    all.push_back(std::move(to));
  }
  size_t granted = 0;
  for (size_t i = 0; i < all.size(); i += 2) {
    all[i].Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, all[i + 1], 0), {all[i].Sge(0, 64)});
    world.Ring(all[i]);
    world.Run();
    if (PermitOf(all[i]).number != 0) granted++;
  }
  EXPECT_EQ(granted, Permits::kMaxPermits);
}

// ---- completions of executed requests

TEST_F(PermitsTest, OneProcessTakesTheCompletionOfAnExecutedRequest) {
  CqControl control{};
  CqEntry entry{};
  EXPECT_FALSE(control.TakeExecuted(entry));
  control.PutExecuted(entry);
  EXPECT_TRUE(control.TakeExecuted(entry));
  EXPECT_FALSE(control.TakeExecuted(entry)) << "another process has taken it";
}

TEST_F(PermitsTest, CompletionsOfExecutedRequestsKeepTheirOrder) {
  CqControl control{};
  CqEntry entry{};
  for (int round = 0; round < 3; round++) {
    for (uint64_t i = 0; i < CqControl::kMostExecuted; i++) {
      EXPECT_EQ(control.CountExecuted(), i);
      entry.wc.wr_id = i;
      control.PutExecuted(entry);
    }
    for (uint64_t i = 0; i < CqControl::kMostExecuted; i++) {
      ASSERT_TRUE(control.TakeExecuted(entry));
      EXPECT_EQ(entry.wc.wr_id, i);
    }
    EXPECT_FALSE(control.HasExecuted());
  }
}

TEST_F(PermitsTest, ADestroyedQpLeavesTheExecutedRequestsOfOthers) {
  CqControl control{};
  CqEntry entry{};
  for (uint32_t i = 0; i < CqControl::kMostExecuted + 7; i++) {
    if (control.CountExecuted() == CqControl::kMostExecuted) (void)control.TakeExecuted(entry);
    entry.wc.wr_id = i;
    entry.wc.qp_num = i % 3;
    control.PutExecuted(entry);
  }
  control.RemoveExecuted([](const CqEntry& each) { return each.wc.qp_num == 1; });
  uint64_t expected = 7;
  while (control.TakeExecuted(entry)) {
    if (expected % 3 == 1) expected++;
    EXPECT_EQ(entry.wc.wr_id, expected++);
  }
  EXPECT_EQ(expected, CqControl::kMostExecuted + 6u) << "the last one was of the QP";
}

TEST_F(PermitsTest, AResizedQueueKeepsTheCompletionsOfExecutedRequests) {
  CompletionQueue* const cq =
      *world.a.verbs.CreateCq(kGroup, {world.a.context->handle, 0, 7, 0, 99});
  CqEntry entry{};
  for (uint64_t i = 0; i < 3; i++) {
    entry.wc.wr_id = i;
    cq->control->PutExecuted(entry);
  }
  EXPECT_TRUE(cq->Push(entry, false));
  EXPECT_FALSE(world.a.verbs.ResizeCq(kGroup, cq->handle, 3)) << "there are four completions";
  ASSERT_TRUE(world.a.verbs.ResizeCq(kGroup, cq->handle, 15));
  for (uint64_t i = 0; i < 3; i++) {
    ASSERT_TRUE(cq->control->TakeExecuted(entry));
    EXPECT_EQ(entry.wc.wr_id, i);
  }
  EXPECT_FALSE(cq->control->HasExecuted());
  EXPECT_EQ(cq->ring.Count(), 1u);
}

TEST_F(PermitsTest, AFalseNumberOfExecutedRequestsEndsTheirMove) {
  for (const uint32_t puts : {65u, 0x80000000u, UINT32_MAX}) {
    CompletionQueue* const cq =
        *world.a.verbs.CreateCq(kGroup, {world.a.context->handle, 0, 127, 0, 99});
    cq->control->executed_puts = puts;
    ASSERT_TRUE(world.a.verbs.ResizeCq(kGroup, cq->handle, 255));
    EXPECT_EQ(cq->control->CountExecuted(), CqControl::kMostExecuted);
  }
}

TEST_F(PermitsTest, OnlyAQueueThatIsArmedForAnyCompletionRaisesAnEventForAnExecutedRequest) {
  CqControl control{};
  EXPECT_FALSE(control.DisarmAny()) << "nobody has armed it";
  ArmCq(control, kCqArmedSolicited, 0);
  EXPECT_FALSE(control.DisarmAny()) << "no request that a program executes is solicited";
  ArmCq(control, kCqArmedAny, 0);
  EXPECT_TRUE(control.DisarmAny());
  EXPECT_FALSE(control.DisarmAny()) << "it was armed once";
}

TEST_F(PermitsTest, AQueueThatIsArmedAfterItsCompletionWasTakenStaysArmed) {
  CqControl control{};
  for (int round = 0; round < 3; round++) {
    CqEntry entry{};
    const uint32_t takes = control.executed_takes;
    ArmCq(control, kCqArmedAny, 0);
    control.PutExecuted(entry);
    EXPECT_TRUE(control.DisarmBeforeTake(takes)) << "armed before the completion";
    ArmCq(control, kCqArmedAny, 0);
    EXPECT_TRUE(control.DisarmBeforeTake(takes)) << "armed before it was taken";
    EXPECT_TRUE(control.TakeExecuted(entry));
    ArmCq(control, kCqArmedAny, 0);
    EXPECT_FALSE(control.DisarmBeforeTake(takes)) << "armed for the next one";
    EXPECT_TRUE(control.DisarmAny());
  }
}

// Otherwise a queue would hold one completion more than its program asked for.
TEST_F(PermitsTest, ACompletionBesideTheRingTakesARoomOfTheQueue) {
  CompletionQueue* const cq =
      *world.a.verbs.CreateCq(kGroup, {world.a.context->handle, 0, 3, 0, 99});
  ASSERT_EQ(cq->ring.usable(), 3u);
  CqEntry entry{};
  cq->control->PutExecuted(entry);
  EXPECT_TRUE(cq->Push(entry, false));
  EXPECT_TRUE(cq->Push(entry, false));
  EXPECT_FALSE(cq->Push(entry, false));
  EXPECT_TRUE(cq->control->TakeExecuted(entry));
  EXPECT_TRUE(cq->Push(entry, false));
  EXPECT_FALSE(cq->Push(entry, false));
}

}  // namespace
}  // namespace rdmaemu::transport::testing
