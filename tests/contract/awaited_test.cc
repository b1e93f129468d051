// WRITEs and READs of a program that awaits each completion before it posts the next request. An
// implementation may execute such requests in another way than streams: in the calling thread, or
// without the other side. Programs must see no difference.
#include "tests/contract/support/payload.h"

namespace rdma_contract {
namespace {

// Also the sizes beside the longest request that the emulator's programs execute themselves.
constexpr uint32_t kSizes[] = {1, 8, 255, 256, 257, 4096, 4097, 8191, 8192, 8193, 65536};
constexpr int kRounds = 8;

class Awaited : public PayloadTest {
 protected:
  template <class Body>
  void ForSizes(Body body, const QpSpec& spec = {}) {
    for (const uint32_t size : kSizes) {
      SCOPED_TRACE(size);
      PayloadPair pair(GetParam(), size, spec);
      ASSERT_NO_FATAL_FAILURE(body(pair));
      EXPECT_TRUE(GuardsIntact());
    }
  }
};

void ExpectDone(PayloadPair& p, const WorkRequest& request) {
  const Completion done = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(done.found);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(done.wc.wr_id, request.wr_id);
  EXPECT_EQ(done.wc.qp_num, p.pair.local_address.qpn);
  EXPECT_EQ(done.wc.opcode,
            request.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
  EXPECT_FALSE(p.local.Poll(p.pair.local, Queue::kSend, 0).found) << "one completion each";
}
void Execute(PayloadPair& p, const WorkRequest& request) {
  ASSERT_EQ(p.local.PostSend(p.pair.local, request), 0);
  ExpectDone(p, request);
}

// Executes requests of this kind, each with other bytes.
void ExpectBytesMoved(PayloadPair& p, ibv_wr_opcode opcode) {
  const bool reads = opcode == IBV_WR_RDMA_READ;
  const Buffer &from = reads ? p.there : p.here, &to = reads ? p.here : p.there;
  WorkRequest request = p.Post(opcode, p.to.rkey);
  for (uint32_t i = 0; i < kRounds; i++) {
    request.wr_id = 100 + i;
    FillPattern(from.bytes(), 10 + i);
    ASSERT_NO_FATAL_FAILURE(Execute(p, request));
    EXPECT_EQ(FirstDifference(to.bytes(), 10 + i), -1);
  }
}

TEST_P(Awaited, WritesArriveBeforeTheirCompletions) {
  ForSizes([](PayloadPair& p) { ExpectBytesMoved(p, IBV_WR_RDMA_WRITE); });
}

TEST_P(Awaited, ReadsReturnWhatIsThere) {
  ForSizes([](PayloadPair& p) { ExpectBytesMoved(p, IBV_WR_RDMA_READ); });
}

TEST_P(Awaited, InlineWritesArrive) {
  QpSpec spec;
  spec.inline_bytes = 64;
  PayloadPair p(GetParam(), 64, spec);
  WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
  write.flags |= IBV_SEND_INLINE;
  for (int i = 0; i < kRounds; i++) {
    FillPattern(p.here.bytes(), static_cast<uint32_t>(10 + i));
    ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
    FillPattern(p.here.bytes(), 1);  // an inline buffer is free at once
    ASSERT_NO_FATAL_FAILURE(ExpectDone(p, write));
    EXPECT_EQ(FirstDifference(p.there.bytes(), static_cast<uint32_t>(10 + i)), -1);
  }
}

TEST_P(Awaited, UnsignaledWritesPrecedeTheNextSignaledOne) {
  ForSizes([](PayloadPair& p) {
    WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    for (int i = 0; i < kRounds; i++) {
      write.flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
      FillPattern(p.here.bytes(), static_cast<uint32_t>(10 + i));
      ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
      if (i % 4 != 3) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectDone(p, write));
      EXPECT_EQ(FirstDifference(p.there.bytes(), static_cast<uint32_t>(10 + i)), -1);
    }
  });
}

TEST_P(Awaited, RequestsOfAllKindsKeepTheirOrder) {
  ForSizes([](PayloadPair& p) {
    const WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    const WorkRequest read = p.Post(IBV_WR_RDMA_READ, p.to.rkey);
    for (int i = 0; i < kRounds; i++) {
      FillPattern(p.here.bytes(), 3);
      ASSERT_NO_FATAL_FAILURE(Execute(p, write));
      // The SEND goes to the same bytes. The receiver has not polled it when the READ begins.
      FillPattern(p.here.bytes(), 4);
      ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
      FillPattern(p.here.bytes(), 5);
      ASSERT_NO_FATAL_FAILURE(Execute(p, read));
      EXPECT_EQ(FirstDifference(p.here.bytes(), 4), -1);
      ASSERT_NO_FATAL_FAILURE(Execute(p, read));
      FillPattern(p.here.bytes(), 6);
      ASSERT_NO_FATAL_FAILURE(Execute(p, write));
      ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
      EXPECT_EQ(FirstDifference(p.there.bytes(), 6), -1) << "the WRITE was last";
    }
  });
}

// ---- what must fail

// Executes some WRITEs, and then one that must fail.
void ExpectFailure(PayloadPair& p, const WorkRequest& bad, ibv_wc_status status) {
  const WorkRequest good = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
  for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, good));
  p.MakeOwn();
  ASSERT_EQ(p.local.PostSend(p.pair.local, bad), 0);
  const Completion failed = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(failed.found);
  EXPECT_EQ(failed.wc.status, status) << Describe(failed);
  EXPECT_EQ(p.local.StateOf(p.pair.local), IBV_QPS_ERR);
  EXPECT_EQ(p.FirstForeign(), -1);
}

TEST_P(Awaited, AWriteBeyondTheRegionFails) {
  PayloadPair p(GetParam(), 64);
  WorkRequest bad = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
  bad.remote_address++;
  ExpectFailure(p, bad, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Awaited, AWriteWithAnotherKeyFails) {
  PayloadPair p(GetParam(), 64);
  ExpectFailure(p, p.Post(IBV_WR_RDMA_WRITE, p.to.rkey ^ 1), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Awaited, AWriteFromBeyondTheLocalRegionFails) {
  PayloadPair p(GetParam(), 64);
  WorkRequest bad = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
  bad.piece[0].addr++;
  p.local.PostSend(p.pair.local, bad);
  const Completion failed = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(failed.found);
  EXPECT_NE(failed.wc.status, IBV_WC_SUCCESS);
}

TEST_P(Awaited, AReadWithoutTheRightFails) {
  PayloadPair p(GetParam(), 64);
  const Region writable =
      p.remote.Register(p.there, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, writable.rkey);
  for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, write));
  ASSERT_EQ(p.local.PostSend(p.pair.local, p.Post(IBV_WR_RDMA_READ, writable.rkey)), 0);
  const Completion failed = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(failed.found);
  EXPECT_EQ(failed.wc.status, IBV_WC_REM_ACCESS_ERR) << Describe(failed);
}

// ---- rights that end

struct DeregisterOrder {
  int region;
  uint64_t memory;
  size_t bytes;
};
int DeregisterAndUse(State& state, const DeregisterOrder& order) {
  ibv_mr*& mr = state.mrs[static_cast<size_t>(order.region)];
  const int error = ibv_dereg_mr(mr);
  mr = nullptr;
  memset(reinterpret_cast<void*>(order.memory), kOwn, order.bytes);
  return error;
}

TEST_P(Awaited, NothingArrivesAfterDeregistration) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "its steps run one after the other";
  for (int run = 0; run < 20; run++) {
    PayloadPair p(GetParam(), 4096);
    const WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, write));
    p.remote.worker().Begin(&DeregisterAndUse,
                            DeregisterOrder{p.to.index, p.there.address(), p.there.size});
    ibv_wc_status status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS) {
      ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
      const Completion done = p.local.Poll(p.pair.local, Queue::kSend);
      ASSERT_TRUE(done.found);
      status = done.wc.status;
    }
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(p.remote.worker().Finish<int>(), 0);
    EXPECT_EQ(p.FirstForeign(), -1);
  }
}

struct RevokeOrder {
  int qp;
  bool to_error;  // else: without the right to read
  uint64_t memory;
  size_t bytes;
};
int RevokeAndUse(State& state, const RevokeOrder& order) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = ibv_modify_qp(state.qps[static_cast<size_t>(order.qp)].qp, &attr,
                                  order.to_error ? IBV_QP_STATE : IBV_QP_ACCESS_FLAGS);
  memset(reinterpret_cast<void*>(order.memory), kOwn, order.bytes);
  return error;
}

constexpr int kNoAnswer_ms = 100;

// READs that have succeeded have read the bytes from before the call.
void ReadWhileTheRightEnds(PayloadPair& p, bool to_error) {
  const WorkRequest read = p.Post(IBV_WR_RDMA_READ, p.to.rkey);
  for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, read));
  p.remote.worker().Begin(&RevokeAndUse,
                          RevokeOrder{p.pair.remote, to_error, p.there.address(), p.there.size});
  for (;;) {
    ASSERT_EQ(p.local.PostSend(p.pair.local, read), 0);
    // rdma_rxe repeats a request without an answer forever (retry_cnt 7).
    const Completion done = p.local.Poll(p.pair.local, Queue::kSend, kNoAnswer_ms);
    if (!done.found || done.wc.status != IBV_WC_SUCCESS) break;
    ASSERT_EQ(FirstDifference(p.here.bytes(), 2), -1) << "read after the call";
  }
  ASSERT_EQ(p.remote.worker().Finish<int>(), 0);
}

TEST_P(Awaited, NothingIsReadAfterTheRightToReadHasEnded) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "its steps run one after the other";
  if (!OnTheEmulator()) GTEST_SKIP() << "rdma_rxe does not check the right of a queue pair again";
  for (int run = 0; run < 60; run++) {
    PayloadPair p(GetParam(), run % 2 == 0 ? 4096 : 8192);
    ASSERT_NO_FATAL_FAILURE(ReadWhileTheRightEnds(p, /*to_error=*/false));
  }
}

TEST_P(Awaited, NothingIsReadAfterTheRespondingQueuePairHasEnded) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "its steps run one after the other";
  for (int run = 0; run < 20; run++) {
    PayloadPair p(GetParam(), run % 2 == 0 ? 4096 : 8192);
    ASSERT_NO_FATAL_FAILURE(ReadWhileTheRightEnds(p, /*to_error=*/true));
  }
}

TEST_P(Awaited, NothingArrivesAfterTheQueuePairHasEnded) {
  PayloadPair p(GetParam(), 4096);
  const WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
  for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, write));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(p.remote.Modify(p.pair.remote, attr, IBV_QP_STATE), 0);
  p.MakeOwn();
  ASSERT_EQ(p.local.Modify(p.pair.local, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
  const Completion flushed = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(flushed.found);
  EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR) << Describe(flushed);
  EXPECT_EQ(p.FirstForeign(), -1);
}

// Registers and deregisters memory that no request names.
int RegisterOften(State& state, const int& region) {
  char bytes[64];
  for (int i = 0; i < 300; i++) {
    ibv_mr* const mr = ibv_reg_mr(state.mrs[static_cast<size_t>(region)]->pd, bytes, sizeof bytes,
                                  IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) return errno;
    if (const int error = ibv_dereg_mr(mr); error != 0) return error;
  }
  return 0;
}

// An implementation may have to stop requests meanwhile. It must not lose count of them.
TEST_P(Awaited, RequestsSucceedWhileThePeerRegistersOtherMemory) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "its steps run one after the other";
  for (int run = 0; run < 12; run++) {
    PayloadPair p(GetParam(), run % 2 == 0 ? 64 : 4096);
    const WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
    const WorkRequest read = p.Post(IBV_WR_RDMA_READ, p.to.rkey);
    for (int i = 0; i < kRounds; i++) ASSERT_NO_FATAL_FAILURE(Execute(p, write));
    p.remote.worker().Begin(&RegisterOften, p.to.index);
    for (int i = 0; i < 1500; i++) {
      ASSERT_NO_FATAL_FAILURE(Execute(p, i / 500 % 2 == 0 ? write : read));
    }
    ASSERT_EQ(p.remote.worker().Finish<int>(), 0);
    ASSERT_NO_FATAL_FAILURE(Execute(p, write));
    ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
    ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
  }
}

EACH_WAY_OF_SIDES(Awaited);

}  // namespace
}  // namespace rdma_contract
