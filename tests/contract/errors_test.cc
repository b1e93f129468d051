// Errors are reported as by the kernel's rxe: the status at each side, the QP that enters ERR, and
// the order of flushed requests.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/contract/support/transfer.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kBytes = 8192;

// The local side posts the faulty request 1 and a correct request 2. Both sides have receives
// posted before.
class Errors : public testing::Test {
 protected:
  void Join(const PathSpec& local_path = {}, const PathSpec& remote_path = {},
            const QpSpec& spec = {}) {
    ASSERT_EQ(local.Open(), 0);
    ASSERT_EQ(remote.Open(), 0);
    pair.local = local.CreateQp(spec);
    pair.remote = remote.CreateQp(spec);
    ASSERT_GE(pair.local, 0);
    ASSERT_GE(pair.remote, 0);
    pair.local_address = local.AddressOf(pair.local);
    pair.remote_address = remote.AddressOf(pair.remote);
    ASSERT_EQ(remote.Connect(pair.remote, remote_path, pair.local_address), 0);
    ASSERT_EQ(local.Connect(pair.local, local_path, pair.remote_address), 0);
    here = Allocate(kBytes);
    there = Allocate(kBytes);
    h = local.Register(here);
    t = remote.Register(there);
    for (const uint64_t wr_id : {200, 201})
      ASSERT_EQ(remote.PostReceive(pair.remote, ReceiveInto(wr_id, there, t)), 0);
    ASSERT_EQ(local.PostReceive(pair.local, ReceiveInto(300, here, h)), 0);
  }
  WorkRequest Write(uint32_t bytes = 64) {
    WorkRequest request{
        .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_address = there.address(), .rkey = t.rkey};
    return request.Add(here.address(), bytes, h.lkey);
  }
  WorkRequest Read(uint32_t bytes = 64) {
    WorkRequest request = Write(bytes);
    request.opcode = IBV_WR_RDMA_READ;
    return request;
  }
  WorkRequest CompareAndSwap() {
    WorkRequest request = Write(8);
    request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    return request;
  }
  void Expect(Side& side, int qp, Queue queue, uint64_t wr_id, ibv_wc_status status) {
    const Completion completion = side.Poll(qp, queue);
    ASSERT_TRUE(completion.found) << "wr_id " << wr_id;
    EXPECT_EQ(completion.wc.wr_id, wr_id);
    EXPECT_EQ(completion.wc.status, status) << Describe(completion);
    EXPECT_EQ(completion.wc.vendor_err, 0u);
  }
  // Checks the status of the failing request, the flush of the next request, and the local QP's
  // state.
  void FailsWith(const WorkRequest& bad, ibv_wc_status status) {
    ASSERT_EQ(local.PostSend(pair.local, bad), 0);
    WorkRequest good = Write();
    good.wr_id = 2;
    ASSERT_EQ(local.PostSend(pair.local, good), 0);
    Expect(local, pair.local, Queue::kSend, 1, status);
    Expect(local, pair.local, Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR);
    Expect(local, pair.local, Queue::kReceive, 300, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_ERR);
  }
  void RemoteIsFlushed() {
    Expect(remote, pair.remote, Queue::kReceive, 200, IBV_WC_WR_FLUSH_ERR);
    Expect(remote, pair.remote, Queue::kReceive, 201, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_ERR);
  }
  void RemoteIsUntouched() {
    EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_RTS);
    EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);
  }
  // Both requests succeed.
  void Succeeds(const WorkRequest& request) {
    ASSERT_EQ(local.PostSend(pair.local, request), 0);
    Expect(local, pair.local, Queue::kSend, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_RTS);
  }

  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
  Pair pair{};
  Buffer here, there;
  Region h, t;
};

// ---- remote access: the requester gets REM_ACCESS, both QPs enter ERR

TEST_F(Errors, WriteWithABadRkey) {
  Join();
  WorkRequest bad = Write();
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
// The receive belongs to the last packet.
TEST_F(Errors, WriteWithImmediateAndABadRkeyTakesAReceiveIfItIsOnePacket) {
  Join();
  WorkRequest bad = Write();
  bad.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  Expect(remote, pair.remote, Queue::kReceive, 200, IBV_WC_REM_ACCESS_ERR);
  Expect(remote, pair.remote, Queue::kReceive, 201, IBV_WC_WR_FLUSH_ERR);
}
TEST_F(Errors, WriteWithImmediateAndABadRkeyTakesNoReceiveIfItIsSeveralPackets) {
  Join();
  WorkRequest bad = Write(5000);
  bad.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, ReadWithABadRkey) {
  Join();
  WorkRequest bad = Read();
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, CompareAndSwapWithABadRkey) {
  Join();
  WorkRequest bad = CompareAndSwap();
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, WriteBeyondTheRegion) {
  Join();
  WorkRequest bad = Write();
  bad.remote_address = there.address() + kBytes - 63;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, ReadBeyondTheRegion) {
  Join();
  WorkRequest bad = Read();
  bad.remote_address = there.address() + kBytes - 63;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, ALongWriteThatCrossesTheEndOfTheRegionWritesNothing) {
  Join();
  WorkRequest bad = Write(5000);
  bad.remote_address = there.address() + kBytes - 4096;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
  EXPECT_TRUE(GuardsIntact());
}
TEST_F(Errors, WriteBelowTheRegion) {
  Join();
  WorkRequest bad = Write();
  bad.remote_address = there.address() - 1;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
  EXPECT_TRUE(GuardsIntact());
}
TEST_F(Errors, WriteIntoARegionWithoutRemoteWrite) {
  Join();
  const Region closed = remote.Register(there, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  WorkRequest bad = Write();
  bad.rkey = closed.rkey;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, ReadFromARegionWithoutRemoteRead) {
  Join();
  const Region closed = remote.Register(there, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  WorkRequest bad = Read();
  bad.rkey = closed.rkey;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, AtomicOnARegionWithoutRemoteAtomic) {
  Join();
  const Region closed = remote.Register(there, kAllAccess & ~IBV_ACCESS_REMOTE_ATOMIC);
  WorkRequest bad = CompareAndSwap();
  bad.rkey = closed.rkey;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, WriteWithTheKeyOfADeregisteredRegion) {
  Join();
  const Region gone = remote.Register(there);
  ASSERT_EQ(remote.Deregister(gone.index), 0);
  WorkRequest bad = Write();
  bad.rkey = gone.rkey;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
}

// ---- the QP's own rights: REM_INV_REQ

TEST_F(Errors, WriteToAQpThatAllowsNone) {
  Join({}, {.access = 0});
  FailsWith(Write(), IBV_WC_REM_INV_REQ_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, ReadFromAQpThatAllowsNone) {
  Join({}, {.access = 0});
  FailsWith(Read(), IBV_WC_REM_INV_REQ_ERR);
  RemoteIsFlushed();
}
TEST_F(Errors, AtomicOnAQpThatAllowsNone) {
  Join({}, {.access = 0});
  FailsWith(CompareAndSwap(), IBV_WC_REM_INV_REQ_ERR);
  RemoteIsFlushed();
}

// ---- zero bytes touch no memory, so keys are not checked

TEST_F(Errors, ZeroByteOperationsWithABadRkeySucceed) {
  Join();
  WorkRequest write{
      .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_address = there.address(), .rkey = 0x12345};
  Succeeds(write);
  write.opcode = IBV_WR_RDMA_READ;
  Succeeds(write);
}

// ---- local keys

TEST_F(Errors, SendWithABadLkey) {
  Join();
  FailsWith(WorkRequest{.wr_id = 1}.Add(here.address(), 64, h.lkey ^ 0x00f0f000),
            IBV_WC_LOC_QP_OP_ERR);
  RemoteIsUntouched();
}
TEST_F(Errors, WriteWithABadLkey) {
  Join();
  WorkRequest bad = Write();
  bad.piece[0].lkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_LOC_QP_OP_ERR);
  RemoteIsUntouched();
}
TEST_F(Errors, SendBeyondItsOwnRegion) {
  Join();
  FailsWith(WorkRequest{.wr_id = 1}.Add(here.address() + kBytes - 10, 64, h.lkey),
            IBV_WC_LOC_PROT_ERR);
  RemoteIsUntouched();
}
TEST_F(Errors, ReadWithABadLkey) {
  Join();
  WorkRequest bad = Read();
  bad.piece[0].lkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_LOC_PROT_ERR);
  RemoteIsUntouched();
}
TEST_F(Errors, CompareAndSwapWithABadLkey) {
  Join();
  WorkRequest bad = CompareAndSwap();
  bad.piece[0].lkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_LOC_PROT_ERR);
  RemoteIsUntouched();
}
TEST_F(Errors, ReadIntoARegionWithoutLocalWrite) {
  Join();
  const Region closed = local.Register(here, 0);
  WorkRequest bad = Read();
  bad.piece[0].lkey = closed.lkey;
  FailsWith(bad, IBV_WC_LOC_PROT_ERR);
}

// ---- receives that do not fit: the sender gets REM_OP, the receiver LOC_QP_OP

TEST_F(Errors, MessageLargerThanItsReceive) {
  for (const uint32_t bytes : {100u, 5000u}) {
    SCOPED_TRACE(bytes);
    Side one(Place::kThisProcess), other(Place::kPeersMachine);
    const Pair two = ConnectPair(one, other);
    ResetArena();
    const Buffer from = Allocate(bytes), into = Allocate(64);
    const Region f = one.Register(from), i = other.Register(into);
    ASSERT_EQ(other.PostReceive(two.remote, ReceiveInto(200, into, i)), 0);
    ASSERT_EQ(other.PostReceive(two.remote, ReceiveInto(201, into, i)), 0);
    ASSERT_EQ(one.PostSend(two.local, SendOf(1, from, f)), 0);
    Expect(one, two.local, Queue::kSend, 1, IBV_WC_REM_OP_ERR);
    Expect(other, two.remote, Queue::kReceive, 200, IBV_WC_LOC_QP_OP_ERR);
    Expect(other, two.remote, Queue::kReceive, 201, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(other.StateOf(two.remote), IBV_QPS_ERR);
    EXPECT_TRUE(GuardsIntact());
  }
}

class ReceiveKeys : public testing::TestWithParam<int> {
};  // the receive region's access, -1: bad lkey

TEST_P(ReceiveKeys, ThatDoNotFitFailBothSides) {
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote);
  const Buffer from = Allocate(64), into = Allocate(64);
  const Region f = local.Register(from);
  Region i = remote.Register(into, GetParam() < 0 ? kAllAccess : GetParam());
  if (GetParam() < 0) i.lkey ^= 0x00f0f000;
  ASSERT_EQ(remote.PostReceive(pair.remote, ReceiveInto(200, into, i)), 0);
  ASSERT_EQ(local.PostSend(pair.local, SendOf(1, from, f)), 0);
  EXPECT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(remote.Poll(pair.remote, Queue::kReceive).wc.status, IBV_WC_LOC_QP_OP_ERR);
}
INSTANTIATE_TEST_SUITE_P(All, ReceiveKeys, testing::Values(-1, 0));

TEST_F(Errors, AReceiveWhoseRegionWentAwayFailsWhenItIsUsed) {
  Join();
  const Buffer into = Allocate(64);
  Side other(Place::kPeersMachine);
  const Pair two = ConnectPair(local, other);
  const Region i = other.Register(into);
  ASSERT_EQ(other.PostReceive(two.remote, ReceiveInto(200, into, i)), 0);
  ASSERT_EQ(other.Deregister(i.index), 0);
  ASSERT_EQ(local.PostSend(two.local, WorkRequest{.wr_id = 1}.Add(here.address(), 64, h.lkey)), 0);
  Expect(local, two.local, Queue::kSend, 1, IBV_WC_REM_OP_ERR);
  Expect(other, two.remote, Queue::kReceive, 200, IBV_WC_LOC_QP_OP_ERR);
}

// ---- requests refused at once

TEST_F(Errors, MalformedRequestsAreRefusedByPostSend) {
  Join();
  WorkRequest unaligned = CompareAndSwap();
  unaligned.remote_address += 4;
  EXPECT_EQ(local.PostSend(pair.local, unaligned), EINVAL);
  WorkRequest small = CompareAndSwap();
  small.piece[0].length = 4;
  EXPECT_EQ(local.PostSend(pair.local, small), EINVAL);
  WorkRequest many = Write();
  many.pieces = kMaxPieces;
  EXPECT_EQ(local.PostSend(pair.local, many), EINVAL);
  Succeeds(Write());
}

TEST_F(Errors, AFullSendQueueSaysEnomem) {
  Join({.rnr_retry = 7}, {.min_rnr_timer = 20}, {.depth = 4});
  // The sends wait for receives, of which only two were posted.
  int posted = 0, result = 0;
  while (posted < 100 && (result = local.PostSend(pair.local, WorkRequest{.wr_id = 1}.Add(
                                                                  here.address(), 8, h.lkey))) == 0)
    ++posted;
  EXPECT_EQ(result, ENOMEM);
  EXPECT_GE(posted, 7);  // 2^n - 1 for 4, and perhaps the requests that completed meanwhile
  EXPECT_LE(posted, 9);
}

// ---- exhausted retries

class NoReceive : public testing::TestWithParam<ibv_wr_opcode> {};
TEST_P(NoReceive, ExceedsTheRnrRetries) {
  Side local(Place::kThisProcess), remote(Place::kPeersMachine);
  const Pair pair = ConnectPair(local, remote, {}, {.rnr_retry = 1});
  const Buffer from = Allocate(64), into = Allocate(64);
  FillPattern(from.bytes(), 3);
  const Region f = local.Register(from), i = remote.Register(into);
  WorkRequest request = WriteTo(1, from, f, into.address(), i.rkey);
  request.opcode = GetParam();
  ASSERT_EQ(local.PostSend(pair.local, request), 0);
  const Completion done = local.Poll(pair.local, Queue::kSend);
  EXPECT_EQ(done.wc.status, IBV_WC_RNR_RETRY_EXC_ERR) << Describe(done);
  EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_ERR);
  EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_RTS);
}
INSTANTIATE_TEST_SUITE_P(All, NoReceive, testing::Values(IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM),
                         [](const auto& info) { return OperationName(info.param); });

TEST_F(Errors, SevenRnrRetriesWaitForAReceiveForEver) {
  Side one(Place::kThisProcess), other(Place::kPeersMachine);
  const Pair two = ConnectPair(one, other, {}, {.rnr_retry = 7});
  const Buffer from = Allocate(64), into = Allocate(64);
  FillPattern(from.bytes(), 4);
  const Region f = one.Register(from), i = other.Register(into);
  ASSERT_EQ(one.PostSend(two.local, SendOf(1, from, f)), 0);
  EXPECT_FALSE(one.Poll(two.local, Queue::kSend, 500).found);
  ASSERT_EQ(other.PostReceive(two.remote, ReceiveInto(2, into, i)), 0);
  Expect(one, two.local, Queue::kSend, 1, IBV_WC_SUCCESS);
  // The device owns a receive's buffer until its completion was polled.
  Expect(other, two.remote, Queue::kReceive, 2, IBV_WC_SUCCESS);
  EXPECT_EQ(FirstDifference(into.bytes(), 4), -1);
}

TEST_F(Errors, APeerThatDestroyedItsQpExceedsTheRetries) {
  Join({.timeout = 8, .retry = 2});
  ASSERT_EQ(remote.DestroyQp(pair.remote), 0);
  FailsWith(Write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Errors, APeerInErrorExceedsTheRetries) {
  Join({.timeout = 8, .retry = 2});
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(remote.Modify(pair.remote, attr, IBV_QP_STATE), 0);
  FailsWith(Write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Errors, AProcessThatDiedExceedsTheRetries) {
  Join({.timeout = 8, .retry = 2});
  remote.worker().Kill();
  FailsWith(Write(), IBV_WC_RETRY_EXC_ERR);
}

// ---- flushing

TEST_F(Errors, EnteringErrorFlushesEverythingInOrderUnsignalledToo) {
  // The peer has no receive posted and RNR retries are endless, so the sends stay queued.
  Side one(Place::kThisProcess), other(Place::kPeersMachine);
  const Pair two = ConnectPair(one, other);
  const Buffer bytes = Allocate(64);
  const Region region = one.Register(bytes);
  for (uint64_t i = 1; i <= 5; ++i) {
    WorkRequest send = SendOf(i, bytes, region);
    if (i % 2 == 0) send.flags = 0;
    ASSERT_EQ(one.PostSend(two.local, send), 0);
  }
  for (uint64_t i = 100; i < 103; ++i)
    ASSERT_EQ(one.PostReceive(two.local, ReceiveInto(i, bytes, region)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(one.Modify(two.local, attr, IBV_QP_STATE), 0);
  for (uint64_t i = 1; i <= 5; ++i) Expect(one, two.local, Queue::kSend, i, IBV_WC_WR_FLUSH_ERR);
  for (uint64_t i = 100; i < 103; ++i)
    Expect(one, two.local, Queue::kReceive, i, IBV_WC_WR_FLUSH_ERR);
  EXPECT_FALSE(one.Poll(two.local, Queue::kSend, kQuiet_ms).found);
}

TEST_F(Errors, ASendPostedInErrorIsFlushed) {
  Join();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(local.Modify(pair.local, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(local.PostSend(pair.local, Write()), 0);
  Expect(local, pair.local, Queue::kSend, 1, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Errors, ResetForgetsWhatWasPosted) {
  Join();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(local.Modify(pair.local, attr, IBV_QP_STATE), 0);
  EXPECT_FALSE(local.Poll(pair.local, Queue::kReceive, kQuiet_ms).found);
}

TEST_F(Errors, AResetQpConnectsAgainAndWorks) {
  Join();
  WorkRequest bad = Write();
  bad.rkey ^= 0x00f0f000;
  FailsWith(bad, IBV_WC_REM_ACCESS_ERR);
  RemoteIsFlushed();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(local.Modify(pair.local, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(remote.Modify(pair.remote, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(remote.Connect(pair.remote, {}, pair.local_address), 0);
  ASSERT_EQ(local.Connect(pair.local, {}, pair.remote_address), 0);
  Succeeds(Write());
}

}  // namespace
}  // namespace rdma_contract
