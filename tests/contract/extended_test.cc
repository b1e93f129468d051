// The extended interfaces: ibv_wr_* on a QP of ibv_create_qp_ex, ibv_start_poll on a CQ of
// ibv_create_cq_ex. They do the same operations on the same bytes.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

constexpr uint64_t kOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

// One side uses the extended calls. The other side, in the peer process or on its host, uses the
// old ones, so that each checks the other.
class Extended : public testing::Test {
 protected:
  void SetUp() override {
    context.reset(OpenTestDevice());
    ASSERT_TRUE(context);
    pd.reset(ibv_alloc_pd(context.get()));
    ibv_cq_init_attr_ex cq_init{};
    cq_init.cqe = 64;
    cq_init.wc_flags = IBV_WC_STANDARD_FLAGS;
    cq_ex = ibv_create_cq_ex(context.get(), &cq_init);
    ASSERT_NE(cq_ex, nullptr);
    cq.reset(ibv_cq_ex_to_cq(cq_ex));
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {32, 32, 4, 4, 64};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd.get();
    init.send_ops_flags = operations;
    qp.reset(ibv_create_qp_ex(context.get(), &init));
    ASSERT_TRUE(qp);
    ex = ibv_qp_to_qp_ex(qp.get());
    ASSERT_NE(ex, nullptr);
    ASSERT_EQ(remote.Open(), 0);
    peer = remote.CreateQp();
    ASSERT_GE(peer, 0);
    const QpAddress there = remote.AddressOf(peer);
    const QpAddress here{qp->qp_num, 5000, GidOf(LocalAddress()),
                         GidIndexOf(context.get(), LocalAddress())};
    ASSERT_EQ(remote.Connect(peer, {}, here), 0);
    ASSERT_EQ(ConnectMyself(there), 0);
    source = Allocate(4000);
    sink = Allocate(4000);
    FillPattern(source.bytes(), 1);
    mr.reset(ibv_reg_mr(pd.get(), source.data, source.size, kAllAccess));
    ASSERT_TRUE(mr);
    to = remote.Register(sink);
  }
  int ConnectMyself(const QpAddress& there) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllAccess;
    if (int result = ibv_modify_qp(
            qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
      return result;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = there.qpn;
    attr.rq_psn = there.psn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = there.gid;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(GidIndexOf(context.get(), LocalAddress()));
    if (int result =
            ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
      return result;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 5000;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    return ibv_modify_qp(qp.get(), &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  // Waits for one completion by the extended calls. The poll stays open so that the test can read
  // the completion's fields.
  void StartPoll() {
    ibv_poll_cq_attr attr{};
    int result = ENOENT;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
    while ((result = ibv_start_poll(cq_ex, &attr)) == ENOENT &&
           std::chrono::steady_clock::now() < until)
      sched_yield();
    ASSERT_EQ(result, 0);
  }
  void ExpectSuccess(uint64_t wr_id, ibv_wc_opcode opcode) {
    ASSERT_NO_FATAL_FAILURE(StartPoll());
    EXPECT_EQ(cq_ex->status, IBV_WC_SUCCESS) << ibv_wc_status_str(cq_ex->status);
    EXPECT_EQ(cq_ex->wr_id, wr_id);
    EXPECT_EQ(ibv_wc_read_opcode(cq_ex), opcode);
    EXPECT_EQ(ibv_wc_read_qp_num(cq_ex), qp->qp_num);
    ibv_end_poll(cq_ex);
  }
  void Begin(uint64_t wr_id) {
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
  }

  uint64_t operations = kOps;  // of the QP
  Side remote{Place::kPeersMachine};
  Context context;
  Pd pd;
  ibv_cq_ex* cq_ex = nullptr;
  Cq cq;
  Mr mr;
  Qp qp;
  ibv_qp_ex* ex = nullptr;
  int peer = -1;
  Buffer source, sink;
  Region to;
};

// Linux 6.1 and rdma-core 44 lack FLUSH. A newer rxe has it: rxe612_test.
TEST_F(Extended, FlushIsNoOperationOfThisDevice) {
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &device), 0);
  EXPECT_EQ(device.device_cap_flags_ex >> 32, 0u);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 8};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd.get();
  constexpr uint64_t kWithFlush = 1 << 11;  // IBV_QP_EX_WITH_FLUSH
  init.send_ops_flags = kOps | kWithFlush;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  constexpr int kAccessFlushGlobal = 1 << 8;  // IBV_ACCESS_FLUSH_GLOBAL
  errno = 0;
  EXPECT_FALSE(Mr(ibv_reg_mr(pd.get(), source.data, source.size, kAccessFlushGlobal)));
  EXPECT_EQ(errno, EINVAL);
}

class ExtendedAtomicWrite : public Extended {
 protected:
  ExtendedAtomicWrite() { operations |= IBV_QP_EX_WITH_ATOMIC_WRITE; }
};

// rdma-core 44 has the builder for every rxe. The driver of Linux 6.1 does not have the operation
// and does not report it, so the request fails where it is sent (next_opcode of rxe_req.c).
TEST_F(ExtendedAtomicWrite, FailsWhereItIsSent) {
  Begin(9);
  const uint64_t word = 1;
  ibv_wr_atomic_write(ex, to.rkey, sink.address(), &word);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ASSERT_NO_FATAL_FAILURE(StartPoll());
  EXPECT_EQ(cq_ex->status, IBV_WC_LOC_QP_OP_ERR) << ibv_wc_status_str(cq_ex->status);
  EXPECT_EQ(cq_ex->wr_id, 9u);
  ibv_end_poll(cq_ex);
  EXPECT_EQ(sink.data[0], 0);
}

TEST_F(Extended, Send) {
  ASSERT_EQ(remote.PostReceive(peer, ReceiveInto(1, sink, to)), 0);
  Begin(10);
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 4000);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(10, IBV_WC_SEND);
  EXPECT_TRUE(remote.Poll(peer, Queue::kReceive).found);
  EXPECT_EQ(FirstDifference(sink.bytes(), 1), -1);
}

TEST_F(Extended, SendWithImmediateFromSeveralPieces) {
  ASSERT_EQ(remote.PostReceive(peer, ReceiveInto(1, sink, to)), 0);
  Begin(11);
  ibv_wr_send_imm(ex, htonl(99));
  ibv_sge pieces[3] = {{source.address(), 1, mr->lkey},
                       {source.address() + 1, 2999, mr->lkey},
                       {source.address() + 3000, 1000, mr->lkey}};
  ibv_wr_set_sge_list(ex, 3, pieces);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(11, IBV_WC_SEND);
  const Completion received = remote.Poll(peer, Queue::kReceive);
  EXPECT_EQ(ntohl(received.wc.imm_data), 99u);
  EXPECT_EQ(FirstDifference(sink.bytes(), 1), -1);
}

TEST_F(Extended, WriteAndWriteWithImmediate) {
  Begin(12);
  ibv_wr_rdma_write(ex, to.rkey, sink.address());
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 4000);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(12, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(FirstDifference(sink.bytes(), 1), -1);
  ASSERT_EQ(remote.PostReceive(peer, WorkRequest{.wr_id = 7}), 0);
  Begin(13);
  ibv_wr_rdma_write_imm(ex, to.rkey, sink.address(), htonl(5));
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 100);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(13, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(remote.Poll(peer, Queue::kReceive).wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

TEST_F(Extended, Read) {
  FillPattern(sink.bytes(), 3);
  Begin(14);
  ibv_wr_rdma_read(ex, to.rkey, sink.address());
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 4000);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(14, IBV_WC_RDMA_READ);
  EXPECT_EQ(FirstDifference(source.bytes(), 3), -1);
}

TEST_F(Extended, Atomics) {
  auto* target = reinterpret_cast<uint64_t*>(sink.data);
  auto* old = reinterpret_cast<uint64_t*>(source.data);
  *target = 40;
  Begin(15);
  ibv_wr_atomic_fetch_add(ex, to.rkey, sink.address(), 2);
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(15, IBV_WC_FETCH_ADD);
  EXPECT_EQ(*old, 40u);
  Begin(16);
  ibv_wr_atomic_cmp_swp(ex, to.rkey, sink.address(), 42, 7);
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(16, IBV_WC_COMP_SWAP);
  EXPECT_EQ(*old, 42u);
  EXPECT_EQ(*target, 7u);
}

// The builder accepts the request and the responder refuses it. ibv_post_send returns EINVAL
// instead.
TEST_F(Extended, AMisalignedAtomicCompletesWithAnError) {
  Begin(17);
  ibv_wr_atomic_fetch_add(ex, to.rkey, sink.address() + 4, 2);
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ASSERT_NO_FATAL_FAILURE(StartPoll());
  EXPECT_EQ(cq_ex->status, IBV_WC_REM_INV_REQ_ERR) << ibv_wc_status_str(cq_ex->status);
  EXPECT_EQ(cq_ex->wr_id, 17u);
  ibv_end_poll(cq_ex);
}

TEST_F(Extended, InlineDataNeedsNoKey) {
  ASSERT_EQ(remote.PostReceive(peer, ReceiveInto(1, sink, to)), 0);
  Begin(17);
  ibv_wr_send(ex);
  ibv_wr_set_inline_data(ex, source.data, 48);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(17, IBV_WC_SEND);
  EXPECT_EQ(remote.Poll(peer, Queue::kReceive).wc.byte_len, 48u);
  EXPECT_EQ(FirstDifference(sink.bytes().first(48), 1), -1);
}

TEST_F(Extended, SeveralRequestsOfOneBatchKeepTheirOrder) {
  ibv_wr_start(ex);
  for (uint64_t i = 0; i < 4; ++i) {
    ex->wr_id = 20 + i;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, to.rkey, sink.address() + 1000 * i);
    ibv_wr_set_sge(ex, mr->lkey, source.address() + 1000 * i, 1000);
  }
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  for (uint64_t i = 0; i < 4; ++i) ExpectSuccess(20 + i, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(FirstDifference(sink.bytes(), 1), -1);
}

TEST_F(Extended, AnAbortedBatchDoesNothing) {
  Begin(30);
  ibv_wr_rdma_write(ex, to.rkey, sink.address());
  ibv_wr_set_sge(ex, mr->lkey, source.address(), 4000);
  ibv_wr_abort(ex);
  Begin(31);
  ibv_wr_rdma_write(ex, to.rkey, sink.address() + 3999);
  ibv_wr_set_sge(ex, mr->lkey, source.address() + 3999, 1);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(31, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(sink.data[0], 0);
}

TEST_F(Extended, ReceivesTellTheirFields) {
  ibv_sge piece{source.address(), 4000, mr->lkey};
  ibv_recv_wr wr{40, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp.get(), &wr, &bad), 0);
  WorkRequest send{.wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm = 1234};
  ASSERT_EQ(remote.PostSend(peer, send.Add(sink.address(), 100, to.lkey)), 0);
  ASSERT_NO_FATAL_FAILURE(StartPoll());
  EXPECT_EQ(cq_ex->wr_id, 40u);
  EXPECT_EQ(cq_ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq_ex), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(cq_ex), 100u);
  EXPECT_EQ(ntohl(ibv_wc_read_imm_data(cq_ex)), 1234u);
  EXPECT_NE(ibv_wc_read_wc_flags(cq_ex) & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(ibv_next_poll(cq_ex), ENOENT);
  ibv_end_poll(cq_ex);
}

TEST_F(Extended, WhatRxeHasNotIsRefused) {
  ibv_cq_init_attr_ex cq_init{};
  cq_init.cqe = 4;
  cq_init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ibv_create_cq_ex(context.get(), &cq_init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_TSO;
  EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdma_contract
