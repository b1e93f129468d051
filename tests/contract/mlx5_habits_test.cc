// Habits of ConnectX devices, as the profile mlx5-roce has them. Each test fails without its habit.
// emulator/verbs/profiles/mlx5-roce.toml names the source of each.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kBytes = 8192;

// Two connected QPs, a region at each side, and no receives.
class Mlx5Habits : public testing::Test {
 protected:
  void Join(ibv_qp_state local_state = IBV_QPS_RTS, PathSpec options = {}) {
    ASSERT_EQ(local.Open(), 0);
    ASSERT_EQ(remote.Open(), 0);
    pair.local = local.CreateQp();
    pair.remote = remote.CreateQp();
    ASSERT_GE(pair.local, 0);
    ASSERT_GE(pair.remote, 0);
    pair.local_address = local.AddressOf(pair.local);
    pair.remote_address = remote.AddressOf(pair.remote);
    ASSERT_EQ(remote.Connect(pair.remote, {}, pair.local_address), 0);
    options.up_to = local_state;
    ASSERT_EQ(local.Connect(pair.local, options, pair.remote_address), 0);
    here = Allocate(kBytes);
    there = Allocate(kBytes);
    h = local.Register(here);
    t = remote.Register(there);
    ASSERT_EQ(h.error, 0);
    ASSERT_EQ(t.error, 0);
  }
  static WorkRequest Piece(uint64_t wr_id, uint64_t address, uint32_t bytes, uint32_t key) {
    WorkRequest request{.wr_id = wr_id};
    return request.Add(address, bytes, key);
  }
  WorkRequest Send(uint32_t bytes) { return Piece(1, here.address(), bytes, h.lkey); }
  void ExpectSent(ibv_wc_status status) { Expect(local, pair.local, Queue::kSend, status); }
  void ExpectReceived(ibv_wc_status status) {
    Expect(remote, pair.remote, Queue::kReceive, status);
  }
  static void Expect(Side& side, int qp, Queue queue, ibv_wc_status status) {
    const Completion completion = side.Poll(qp, queue);
    ASSERT_TRUE(completion.found);
    EXPECT_EQ(completion.wc.status, status) << Describe(completion);
  }

  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
  Pair pair{};
  Buffer here, there;
  Region h, t;
};

// always_has_rkey
TEST_F(Mlx5Habits, ARegionWithoutRemoteRightsHasAnRkeyThatGrantsNothing) {
  Join();
  const Region private_region = remote.Register(there, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(private_region.error, 0);
  EXPECT_NE(private_region.rkey, 0u);
  EXPECT_EQ(private_region.rkey, private_region.lkey);
  WorkRequest write = Send(64);
  write.opcode = IBV_WR_RDMA_WRITE;
  write.remote_address = there.address();
  write.rkey = private_region.rkey;
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  ExpectSent(IBV_WC_REM_ACCESS_ERR);
}

// tells_key_errors, in a send. Another error of the gather is LOC_PROT on rdma_rxe, too.
TEST_F(Mlx5Habits, ASendWithABadLkeyIsAProtectionError) {
  Join();
  WorkRequest send = Send(64);
  send.piece[0].lkey ^= 0x00f0f000;
  ASSERT_EQ(local.PostSend(pair.local, send), 0);
  ExpectSent(IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(local.StateOf(pair.local), IBV_QPS_ERR);
}

// tells_key_errors, in a receive
TEST_F(Mlx5Habits, AReceiveWithABadLkeyIsAProtectionErrorAtBothEnds) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), kBytes, t.lkey ^ 0x00f0f000)),
            0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectReceived(IBV_WC_LOC_PROT_ERR);
  ExpectSent(IBV_WC_REM_OP_ERR);
}

// refuses_long_sends, and tells_receive_errors_apart at the receiver
TEST_F(Mlx5Habits, ASendThatIsTooLongIsAnInvalidRequest) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), 63, t.lkey)), 0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectReceived(IBV_WC_LOC_LEN_ERR);
  ExpectSent(IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Mlx5Habits, ASendOfSeveralPacketsThatIsTooLongIsAnInvalidRequest) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), 4095, t.lkey)), 0);
  ASSERT_EQ(local.PostSend(pair.local, Send(4096)), 0);
  ExpectReceived(IBV_WC_LOC_LEN_ERR);
  ExpectSent(IBV_WC_REM_INV_REQ_ERR);
}

// bound_regions_are_busy
TEST_F(Mlx5Habits, ARegionWithABoundWindowIsBusy) {
  Join();
  const Region bindable = local.Register(here, kAllAccess | IBV_ACCESS_MW_BIND);
  ASSERT_EQ(bindable.error, 0);
  const uint32_t rkey = local.BindWindow(pair.local, bindable.index, here, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(rkey, 0u);
  EXPECT_EQ(local.Deregister(bindable.index), EBUSY);
}

// IBTA 9.9.3, class J, as rdma_rxe: the sender gets an ACK, the receiver an error.
TEST_F(Mlx5Habits, AnInvalidateOfAWrongKeyFailsTheReceiver) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), kBytes, t.lkey)), 0);
  WorkRequest send = Send(64);
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.imm = t.rkey ^ 0x00f0f000;
  ASSERT_EQ(local.PostSend(pair.local, send), 0);
  ExpectSent(IBV_WC_SUCCESS);
  ExpectReceived(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(remote.StateOf(pair.remote), IBV_QPS_ERR);
}

// completes_misaligned_atomics
TEST_F(Mlx5Habits, AMisalignedAtomicIsPostedAndCompletesWithAnError) {
  Join();
  WorkRequest atomic = Send(8);
  atomic.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  atomic.remote_address = (there.address() + 8) / 8 * 8 + 4;
  atomic.rkey = t.rkey;
  ASSERT_EQ(local.PostSend(pair.local, atomic), 0);
  ExpectSent(IBV_WC_REM_INV_REQ_ERR);
}

// accepts_early_sends
TEST_F(Mlx5Habits, ASendPostedBeforeRtsIsSentInRts) {
  Join(IBV_QPS_RTR);
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), kBytes, t.lkey)), 0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.sq_psn = pair.local_address.psn;
  attr.max_rd_atomic = 1;
  ASSERT_EQ(local.Modify(pair.local, attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
  ExpectSent(IBV_WC_SUCCESS);
  ExpectReceived(IBV_WC_SUCCESS);
}

TEST_F(Mlx5Habits, ASendPostedBeforeRtsIsFlushedInError) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    SCOPED_TRACE(state);
    Join(state);
    ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(local.Modify(pair.local, attr, IBV_QP_STATE), 0);
    ExpectSent(IBV_WC_WR_FLUSH_ERR);
  }
}

// flush_receives_posted_in_error
TEST_F(Mlx5Habits, AReceivePostedInErrorIsFlushed) {
  Join();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(remote.Modify(pair.remote, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), kBytes, t.lkey)), 0);
  ExpectReceived(IBV_WC_WR_FLUSH_ERR);
}

// raises_qp_fatal: the natural cause of IBV_EVENT_QP_ACCESS_ERR is a request without a right.
TEST_F(Mlx5Habits, ARefusedWriteIsAnEventAtTheResponder) {
  Join();
  WorkRequest write = Send(64);
  write.opcode = IBV_WR_RDMA_WRITE;
  write.remote_address = there.address();
  write.rkey = t.rkey ^ 0x00f0f000;
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  ExpectSent(IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(remote.NextAsyncEvent(kPatience_ms), IBV_EVENT_QP_ACCESS_ERR);
}

class Mlx5VendorErrors : public Mlx5Habits {
 protected:
  static void Expect(Side& side, int qp, Queue queue, ibv_wc_status status, uint32_t vendor_err) {
    const Completion completion = side.Poll(qp, queue);
    ASSERT_TRUE(completion.found);
    EXPECT_EQ(completion.wc.status, status) << Describe(completion);
    EXPECT_EQ(completion.wc.vendor_err, vendor_err) << Describe(completion);
  }
  void ExpectSent(ibv_wc_status status, uint32_t vendor_err) {
    Expect(local, pair.local, Queue::kSend, status, vendor_err);
  }
  void ExpectReceived(ibv_wc_status status, uint32_t vendor_err) {
    Expect(remote, pair.remote, Queue::kReceive, status, vendor_err);
  }
};

// vendor_err_remote_access and vendor_err_flush
TEST_F(Mlx5VendorErrors, ASuccessHasNoneAndARefusedWriteAndItsSuccessorHaveOne) {
  Join();
  WorkRequest write = Send(64);
  write.opcode = IBV_WR_RDMA_WRITE;
  write.remote_address = there.address();
  write.rkey = t.rkey;
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  ExpectSent(IBV_WC_SUCCESS, 0);
  write.rkey ^= 0x00f0f000;
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  ExpectSent(IBV_WC_REM_ACCESS_ERR, 0x88);
  write.rkey = t.rkey;
  ASSERT_EQ(local.PostSend(pair.local, write), 0);
  ExpectSent(IBV_WC_WR_FLUSH_ERR, 0xf9);
}

// vendor_err_local_protection
TEST_F(Mlx5VendorErrors, ABadLkeyOfASend) {
  Join();
  WorkRequest send = Send(64);
  send.piece[0].lkey ^= 0x00f0f000;
  ASSERT_EQ(local.PostSend(pair.local, send), 0);
  ExpectSent(IBV_WC_LOC_PROT_ERR, 0x51);
}

// vendor_err_receive_protection and vendor_err_remote_operation
TEST_F(Mlx5VendorErrors, ABadLkeyOfAReceive) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), kBytes, t.lkey ^ 0x00f0f000)),
            0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectReceived(IBV_WC_LOC_PROT_ERR, 0x32);
  ExpectSent(IBV_WC_REM_OP_ERR, 0x89);
}

// vendor_err_remote_invalid. No public report has the value of the receiver's LOC_LEN.
TEST_F(Mlx5VendorErrors, ASendThatIsTooLong) {
  Join();
  ASSERT_EQ(remote.PostReceive(pair.remote, Piece(2, there.address(), 63, t.lkey)), 0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectReceived(IBV_WC_LOC_LEN_ERR, 0);
  ExpectSent(IBV_WC_REM_INV_REQ_ERR, 0x8a);
}

// vendor_err_rnr_exceeded
TEST_F(Mlx5VendorErrors, ASendWithoutAReceive) {
  Join(IBV_QPS_RTS, {.rnr_retry = 0});
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectSent(IBV_WC_RNR_RETRY_EXC_ERR, 0x87);
}

// vendor_err_retry_exceeded. A QP in RESET answers nothing.
TEST_F(Mlx5VendorErrors, APeerThatDoesNotAnswer) {
  Join(IBV_QPS_RTS, {.timeout = 1, .retry = 0});
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(remote.Modify(pair.remote, attr, IBV_QP_STATE), 0);
  ASSERT_EQ(local.PostSend(pair.local, Send(64)), 0);
  ExpectSent(IBV_WC_RETRY_EXC_ERR, 0x81);
}

// purges_completions. Another QP's completions in the same CQ stay, in their order.
class Mlx5Purge : public DeviceTest {
 protected:
  // Leaves the QP's flushed receives in the CQ.
  static void Flush(ibv_qp* qp, std::vector<uint64_t> wr_ids) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    for (const uint64_t wr_id : wr_ids) {
      ibv_recv_wr receive{};
      receive.wr_id = wr_id;
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
    }
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  }
  static std::vector<uint64_t> Drain(ibv_cq* cq) {
    std::vector<uint64_t> wr_ids;
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 1) wr_ids.push_back(wc.wr_id);
    return wr_ids;
  }
};

TEST_F(Mlx5Purge, ResetAndDestroyRemoveTheCompletionsOfTheirQp) {
  using Ids = std::vector<uint64_t>;
  for (const bool by_reset : {true, false}) {
    SCOPED_TRACE(by_reset);
    const Cq cq = MakeCq();
    Qp first = MakeQp(IBV_QPT_RC, cq.get()), second = MakeQp(IBV_QPT_RC, cq.get());
    const Qp third = MakeQp(IBV_QPT_RC, cq.get());
    ASSERT_TRUE(first && second && third);
    Flush(first.get(), {1, 2});
    Flush(second.get(), {3, 4, 5});
    Flush(third.get(), {6});
    if (by_reset) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(ibv_modify_qp(second.get(), &attr, IBV_QP_STATE), 0);
    } else {
      second.reset();
    }
    EXPECT_EQ(Drain(cq.get()), (Ids{1, 2, 6}));
    first.reset();
    EXPECT_EQ(Drain(cq.get()), Ids{});
  }
}

// Calls of one side, without a peer.
class Mlx5Calls : public DeviceTest {
 protected:
  // Returns the status of a QP's SEND to itself into a receive of an SRQ. The region of the
  // receive belongs to `region_pd`, the SRQ to `srq_pd`, the QP to `pd`.
  ibv_wc_status SendIntoSrq(ibv_pd* region_pd, ibv_pd* srq_pd) {
    Buffer buffer = Allocate(kBytes);
    const Mr mr(ibv_reg_mr(region_pd, buffer.data, buffer.size, kAllAccess));
    const Mr own(ibv_reg_mr(pd.get(), buffer.data, buffer.size, kAllAccess));
    ibv_srq_init_attr srq_init{};
    srq_init.attr = {4, 1, 0};
    const Srq srq(ibv_create_srq(srq_pd, &srq_init));
    const Cq send_cq = MakeCq(), receive_cq = MakeCq();
    ibv_qp_init_attr init{};
    init.send_cq = send_cq.get();
    init.recv_cq = receive_cq.get();
    init.srq = srq.get();
    init.cap = {4, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    const Qp qp(ibv_create_qp(pd.get(), &init));
    EXPECT_TRUE(mr && own && srq && qp);
    ConnectToItself(qp.get());
    ibv_sge into{buffer.address(), 64, mr->lkey}, from{buffer.address() + 4096, 64, own->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &into;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(srq.get(), &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.sg_list = &from;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad_send = nullptr;
    EXPECT_EQ(ibv_post_send(qp.get(), &send, &bad_send), 0);
    return Next(receive_cq.get());
  }
  void ConnectToItself(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.min_rnr_timer = 1;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = PathToMyself();
    EXPECT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  // Waits for the next completion and returns its status.
  static ibv_wc_status Next(ibv_cq* cq) {
    ibv_wc wc{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
      if (std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "no completion";
        return IBV_WC_GENERAL_ERR;
      }
    }
    return wc.status;
  }
};

// checks_srq_pd
TEST_F(Mlx5Calls, AReceiveOfAnSrqIsCheckedAgainstThePdOfTheSrq) {
  const Pd other(ibv_alloc_pd(context.get()));
  ASSERT_TRUE(other);
  EXPECT_EQ(SendIntoSrq(other.get(), other.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(SendIntoSrq(pd.get(), other.get()), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(SendIntoSrq(pd.get(), pd.get()), IBV_WC_SUCCESS);
}

// checks_pkey_index
TEST_F(Mlx5Calls, APkeyIndexBeyondTheTableIsRefused) {
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_RC, cq.get());
  ASSERT_TRUE(qp);
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(context.get(), &limits), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.pkey_index = port.pkey_tbl_len;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            EINVAL);
}

// checks_responder_depth
TEST_F(Mlx5Calls, MoreReadsAtOnceThanTheDeviceServesAreRefused) {
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_RC, cq.get());
  ASSERT_TRUE(qp);
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(context.get(), &limits), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.hop_limit = 1;
  attr.ah_attr.grh.dgid = GidOf(LocalAddress());
  constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr.max_dest_rd_atomic = static_cast<uint8_t>(limits.max_qp_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kMask), EINVAL);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(limits.max_qp_rd_atom);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kMask), 0);
}

// A slot's room for inline data is not granted as SGEs.
TEST_F(Mlx5Calls, InlineDataGrantsNoMoreSgesThanTheDeviceHas) {
  const Cq cq = MakeCq();
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(context.get(), &limits), 0);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {1, 1, 1, 1, 900};
  const Qp qp(ibv_create_qp(pd.get(), &attr));
  ASSERT_TRUE(qp);
  EXPECT_LE(attr.cap.max_send_sge, static_cast<uint32_t>(limits.max_sge));
}

// max_inline_bytes
TEST_F(Mlx5Calls, InlineDataIsLimitedBySizeOfTheSendRequest) {
  constexpr uint32_t kMost = 1004;
  const Cq cq = MakeCq();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {1, 1, 1, 1, kMost};
  const Qp qp(ibv_create_qp(pd.get(), &attr));
  ASSERT_TRUE(qp);
  EXPECT_GE(attr.cap.max_inline_data, kMost);
  attr.cap = {1, 1, 1, 1, kMost + 1};
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// reregisters_regions
TEST_F(Mlx5Calls, ARegionCanBeRegisteredAgain) {
  Buffer buffer = Allocate(kBytes);
  const Mr mr(ibv_reg_mr(pd.get(), buffer.data, buffer.size, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_TRUE(mr);
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
}

// fails_long_datagrams
TEST_F(Mlx5Calls, ADatagramAboveTheMtuIsALengthError) {
  Buffer buffer = Allocate(kBytes);
  const Mr mr(ibv_reg_mr(pd.get(), buffer.data, buffer.size, kAllAccess));
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_UD, cq.get());
  ibv_ah_attr path = PathToMyself();
  const Ah ah(ibv_create_ah(pd.get(), &path));
  ASSERT_TRUE(mr && qp && ah);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(
      ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
      0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  ibv_sge piece{buffer.address(), (128u << port.active_mtu) + 1, mr->lkey};
  ibv_send_wr send{};
  send.sg_list = &piece;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.wr.ud.ah = ah.get();
  send.wr.ud.remote_qpn = qp->qp_num;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp.get(), &send, &bad), 0);
  EXPECT_EQ(Next(cq.get()), IBV_WC_LOC_LEN_ERR);
}

}  // namespace
}  // namespace rdma_contract
