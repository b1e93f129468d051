// A call or request can end a right to memory. When the call has returned or the request has
// completed, earlier data is in that memory, and no further byte is written to it.
#include <signal.h>

#include "tests/contract/support/payload.h"

namespace rdma_contract {
namespace {

using PayloadRights = PayloadTest;

// ---- received and not polled

TEST_P(PayloadRights, WhatArrivedIsInPlaceWhenItsRegionIsDeregistered) {
  EachSize([](PayloadPair& p) {
    ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
    ASSERT_EQ(p.remote.Deregister(p.to.index), 0);
    EXPECT_TRUE(p.Arrived());
    p.MakeOwn();
    ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
    EXPECT_EQ(p.FirstForeign(), -1);
  });
}

TEST_P(PayloadRights, WhatArrivedIsInPlaceWhenItsRegionIsMoved) {
  EachSize([](PayloadPair& p) {
    const Buffer other = Allocate(p.room());
    ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
    if (p.remote.worker().Call(&ReregisterStep,
                               ReregisterOrder{p.to.index, other.address(), other.size}) != 0) {
      GTEST_SKIP() << "the device does not reregister regions";
    }
    EXPECT_TRUE(p.Arrived());
    p.MakeOwn();
    ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
    EXPECT_EQ(p.FirstForeign(), -1);
  });
}

TEST_P(PayloadRights, WhatArrivedIsInPlaceWhenTheQueuePairIsDestroyed) {
  EachSize([](PayloadPair& p) {
    ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
    ASSERT_EQ(p.remote.DestroyQp(p.pair.remote), 0);
    EXPECT_TRUE(p.Arrived());
    p.MakeOwn();
    ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
    EXPECT_EQ(p.FirstForeign(), -1);
  });
}

// ---- requests in flight

struct EndOrder {
  enum What { kDeregister, kReregister, kCloseWindow, kRebind, kInvalidate } what = kDeregister;
  int qp = -1, object = -1;  // the index of a region or a window
  int region = -1;           // the region for a window's new binding
  uint32_t rkey = 0;
  uint64_t memory = 0;
  size_t bytes = 0;
  uint64_t other = 0;  // the memory to which the right moves
};

bool Invalidate(State& state, const EndOrder& order) {
  const QueuePair& pair = state.qps[static_cast<size_t>(order.qp)];
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = order.rkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(pair.qp, &wr, &bad) != 0) return false;
  ibv_wc wc{};
  int got = 0;
  while ((got = ibv_poll_cq(pair.send_cq, 1, &wc)) == 0) sched_yield();
  return got == 1 && wc.status == IBV_WC_SUCCESS;
}

// Ends the right and then uses the memory at once.
int EndRightStep(State& state, const EndOrder& order) {
  bool done = false;
  switch (order.what) {
    case EndOrder::kDeregister: {
      ibv_mr*& mr = state.mrs[static_cast<size_t>(order.object)];
      done = ibv_dereg_mr(mr) == 0;
      if (done) mr = nullptr;
      break;
    }
    case EndOrder::kReregister:
      done = ReregisterStep(state, {order.object, order.other, order.bytes}) == 0;
      break;
    case EndOrder::kCloseWindow:
      done = CloseWindowStep(state, order.object) == 0;
      break;
    case EndOrder::kRebind:
      done = BindType1Step(state, {order.qp, order.object, order.region, order.other, order.bytes})
                 .rkey != 0;
      break;
    case EndOrder::kInvalidate:
      done = Invalidate(state, order);
      break;
  }
  if (done) memset(reinterpret_cast<void*>(order.memory), kOwn, order.bytes);
  return done ? 0 : 1;
}

// WRITEs to the memory by `rkey` while the right to it ends. The WRITE may succeed or fail, but its
// bytes must not arrive after the end of the right.
void WriteWhileTheRightEnds(PayloadPair& p, EndOrder order, uint32_t rkey) {
  constexpr int kWrites = 4;
  order.qp = p.pair.remote;
  order.memory = p.there.address();
  order.bytes = p.there.size;
  // A polling thread makes copies for the host. It polls before and meanwhile.
  EXPECT_FALSE(p.local.Poll(p.pair.local, Queue::kSend, 0).found);
  WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, rkey);
  for (int i = 0; i < kWrites; i++) ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
  p.remote.worker().Begin(&EndRightStep, order);
  for (int i = 0; i < kWrites; i++) {
    ASSERT_TRUE(p.local.Poll(p.pair.local, Queue::kSend).found);
  }
  if (p.remote.worker().Finish<int>() != 0) GTEST_SKIP() << "the device does not do this";
  // rdma_rxe checks a key only with the first packet of a message.
  if (OnTheEmulator()) {
    EXPECT_EQ(p.FirstForeign(), -1);
  }
}

// WRITEs from the memory while it is deregistered. Each WRITE sends the old bytes or fails.
TEST_P(PayloadRights, NothingIsReadAfterDeregistration) {
  EachSize([](PayloadPair& p) {
    constexpr int kWrites = 8;
    WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    for (int i = 0; i < kWrites; i++) ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
    const EndOrder order{.what = EndOrder::kDeregister,
                         .object = p.from.index,
                         .memory = p.here.address(),
                         .bytes = p.here.size};
    ASSERT_EQ(p.local.worker().Call(&EndRightStep, order), 0);
    for (int i = 0; i < kWrites; i++) {
      ASSERT_TRUE(p.local.Poll(p.pair.local, Queue::kSend).found);
    }
    if (!OnTheEmulator()) return;
    std::vector<uint8_t> sent(p.size), before(p.size);
    FillPattern(sent, 1);
    FillPattern(before, 2);
    for (size_t i = 0; i < p.size; i++) {
      const uint8_t is = p.there.bytes()[i];
      ASSERT_TRUE(is == sent[i] || is == before[i]) << "byte " << i << " is of afterwards";
    }
  });
}

TEST_P(PayloadRights, NothingIsWrittenAfterDeregistration) {
  EachSize([](PayloadPair& p) {
    WriteWhileTheRightEnds(p, {.what = EndOrder::kDeregister, .object = p.to.index}, p.to.rkey);
  });
}

TEST_P(PayloadRights, NothingIsWrittenToWhereARegionWas) {
  EachSize([](PayloadPair& p) {
    const Buffer other = Allocate(p.room());
    WriteWhileTheRightEnds(
        p, {.what = EndOrder::kReregister, .object = p.to.index, .other = other.address()},
        p.to.rkey);
  });
}

// A region with windows cannot be deregistered. This test therefore ends the window.
BoundWindow OpenWindow(PayloadPair& p) {
  const BoundWindow window = p.remote.worker().Call(
      &BindType1Step, WindowOrder{p.pair.remote, -1, p.to.index, p.there.address(), p.there.size});
  EXPECT_NE(window.rkey, 0u);
  return window;
}

TEST_P(PayloadRights, NothingIsWrittenAfterAWindowIsDeallocated) {
  EachSize([](PayloadPair& p) {
    const BoundWindow window = OpenWindow(p);
    WriteWhileTheRightEnds(p, {.what = EndOrder::kCloseWindow, .object = window.window},
                           window.rkey);
  });
}

int NewestWindowStep(State& state, const int&) { return static_cast<int>(state.mws.size()) - 1; }

TEST_P(PayloadRights, NothingIsWrittenAfterAType2WindowIsDeallocated) {
  EachSize([](PayloadPair& p) {
    const uint32_t rkey =
        p.remote.BindWindow(p.pair.remote, p.to.index, p.there, IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(rkey, 0u);
    const int window = p.remote.worker().Call(&NewestWindowStep, 0);
    WriteWhileTheRightEnds(p, {.what = EndOrder::kCloseWindow, .object = window}, rkey);
  });
}

TEST_P(PayloadRights, NothingIsWrittenAfterAWindowIsBoundElsewhere) {
  EachSize([](PayloadPair& p) {
    const BoundWindow window = OpenWindow(p);
    const Buffer other = Allocate(p.room());
    const Region elsewhere = p.remote.Register(other, kAllAccess | IBV_ACCESS_MW_BIND);
    WriteWhileTheRightEnds(p,
                           {.what = EndOrder::kRebind,
                            .object = window.window,
                            .region = elsewhere.index,
                            .other = other.address()},
                           window.rkey);
    EXPECT_EQ(p.remote.worker().Call(&CloseWindowStep, window.window), 0);
  });
}

TEST_P(PayloadRights, NothingIsWrittenAfterALocalInvalidate) {
  EachSize([](PayloadPair& p) {
    const uint32_t rkey =
        p.remote.BindWindow(p.pair.remote, p.to.index, p.there, IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(rkey, 0u);
    WriteWhileTheRightEnds(p, {.what = EndOrder::kInvalidate, .rkey = rkey}, rkey);
  });
}

TEST_P(PayloadRights, ARemoteInvalidateComesAfterAllBytesOfTheWriteBeforeIt) {
  EachSize([](PayloadPair& p) {
    const uint32_t rkey =
        p.remote.BindWindow(p.pair.remote, p.to.index, p.there, IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(rkey, 0u);
    ASSERT_EQ(p.remote.PostReceive(p.pair.remote, WorkRequest{.wr_id = 1}), 0);
    ASSERT_EQ(p.local.PostSend(p.pair.local, p.Post(IBV_WR_RDMA_WRITE, rkey)), 0);
    WorkRequest invalidate{.wr_id = 3, .opcode = IBV_WR_SEND_WITH_INV, .imm = rkey};
    ASSERT_EQ(p.local.PostSend(p.pair.local, invalidate), 0);
    const Completion received = p.remote.Poll(p.pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_TRUE(p.Arrived());
    p.MakeOwn();
    for (int i = 0; i < 2; i++) {
      EXPECT_EQ(p.local.Poll(p.pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
    }
    // The key is invalid now. A request of zero bytes needs no key.
    ASSERT_EQ(p.local.PostSend(p.pair.local, p.Post(IBV_WR_RDMA_WRITE, rkey)), 0);
    EXPECT_EQ(p.local.Poll(p.pair.local, Queue::kSend).wc.status,
              p.size == 0 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(p.FirstForeign(), -1);
  });
}

// ---- SIGKILL

TEST_P(PayloadRights, AKilledWriterLeavesOldBytesOrItsOwn) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the writer would take the test along";
  for (const uint32_t size : kPayloadSizes) {
    SCOPED_TRACE(size);
    ResetArena();
    Side survivor(Place::kThisProcess), writer(Place::kPeersMachine);
    const Pair pair = ConnectPair(writer, survivor, {}, {.mtu = IBV_MTU_4096});
    const Buffer source = Allocate(size + 1), sink = Allocate(size + 1);
    FillPattern(source.bytes(), 1);
    FillPattern(sink.bytes(), 2);
    const Region from = writer.Register(source), to = survivor.Register(sink);
    WorkRequest write{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE};
    write.remote_address = sink.address();
    write.rkey = to.rkey;
    write.Add(source.address(), size, from.lkey);
    ASSERT_EQ(writer.PostSend(pair.local, write), 0);
    writer.worker().Kill();
    ASSERT_EQ(survivor.Deregister(to.index), 0);
    for (size_t i = 0; i < size; i++) {
      const bool old = FirstDifference(sink.bytes().subspan(i, 1), 2, i) == -1;
      const bool written = FirstDifference(sink.bytes().subspan(i, 1), 1, i) == -1;
      ASSERT_TRUE(old || written) << "byte " << i;
    }
    memset(sink.data, kOwn, sink.size);
    // Another process connects and works. No data of the killed one arrives meanwhile.
    Side other(Place::kPeersMachine);
    ConnectPair(other, survivor, {}, {.mtu = IBV_MTU_4096});
    for (const uint8_t byte : sink.bytes()) ASSERT_EQ(byte, kOwn);
    EXPECT_TRUE(GuardsIntact());
  }
}

// The requests before the first failure have succeeded. The first failure is RETRY_EXC_ERR, and the
// device flushes the rest. The last request was posted after the end of the receiver.
void ExpectEndOfRetries(Side& writer, int qp, uint64_t last) {
  bool failed = false;
  for (uint64_t i = 0; i <= last; i++) {
    const Completion one = writer.Poll(qp, Queue::kSend);
    ASSERT_TRUE(one.found) << i;
    EXPECT_EQ(one.wc.wr_id, i);
    if (failed) {
      EXPECT_EQ(one.wc.status, IBV_WC_WR_FLUSH_ERR) << Describe(one);
    } else if (one.wc.status != IBV_WC_SUCCESS) {
      EXPECT_EQ(one.wc.status, IBV_WC_RETRY_EXC_ERR) << Describe(one);
      failed = true;
    }
  }
  EXPECT_TRUE(failed) << "a request to a killed process succeeded";
}

void KillReceiver(uint32_t size, ibv_wr_opcode opcode) {
  constexpr uint64_t kRequests = 4;
  ResetArena();
  Side writer(Place::kThisProcess), receiver(Place::kPeersMachine);
  const Pair pair =
      ConnectPair(writer, receiver, {}, {.mtu = IBV_MTU_4096, .timeout = 12, .retry = 2});
  const Buffer source = Allocate(size + 1), sink = Allocate(size + 1);
  FillPattern(source.bytes(), 1);
  FillPattern(sink.bytes(), 2);
  const Region from = writer.Register(source), to = receiver.Register(sink);
  for (uint64_t i = 0; i <= kRequests; i++) {
    ASSERT_EQ(receiver.PostReceive(pair.remote,
                                   WorkRequest{.wr_id = i}.Add(sink.address(), size, to.lkey)),
              0);
  }
  WorkRequest request{.opcode = opcode, .remote_address = sink.address(), .rkey = to.rkey};
  request.Add(source.address(), size, from.lkey);
  for (; request.wr_id < kRequests; request.wr_id++) {
    ASSERT_EQ(writer.PostSend(pair.local, request), 0);
  }
  receiver.worker().Kill();
  ASSERT_EQ(writer.PostSend(pair.local, request), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectEndOfRetries(writer, pair.local, kRequests));
  EXPECT_EQ(FirstDifference(source.bytes(), 1), -1);
  EXPECT_TRUE(GuardsIntact());
  // The killed process used memory that this process has as well. Nothing more is written to it.
  memset(sink.data, kOwn, sink.size);
  Side other(Place::kPeersMachine);
  const Pair next = ConnectPair(writer, other, {}, {.mtu = IBV_MTU_4096});
  const Buffer arrived = Allocate(size + 1);
  const Region there = other.Register(arrived);
  ASSERT_EQ(writer.PostSend(next.local, WriteTo(7, source, from, arrived.address(), there.rkey)),
            0);
  EXPECT_EQ(writer.Poll(next.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(FirstDifference(arrived.bytes(), 1), -1);
  for (const uint8_t byte : sink.bytes()) ASSERT_EQ(byte, kOwn);
}

TEST_P(PayloadRights, TheWriterToAKilledReceiverGetsItsCompletions) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the receiver would take the test along";
  for (const uint32_t size : kPayloadSizes) {
    SCOPED_TRACE(size);
    ASSERT_NO_FATAL_FAILURE(KillReceiver(size, IBV_WR_RDMA_WRITE));
  }
}

TEST_P(PayloadRights, TheSenderToAKilledReceiverGetsItsCompletions) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the receiver would take the test along";
  for (const uint32_t size : kPayloadSizes) {
    SCOPED_TRACE(size);
    ASSERT_NO_FATAL_FAILURE(KillReceiver(size, IBV_WR_SEND));
  }
}

EACH_WAY_OF_SIDES(PayloadRights);

}  // namespace
}  // namespace rdma_contract
