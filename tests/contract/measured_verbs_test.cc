// Details of verbs as measured on the kernel's rxe: fields of completions, results of calls, and a
// QP's behaviour at the limits of its states.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kRouteBytes = 40;
constexpr uint32_t kQkey = 0x22222222;

class MeasuredVerbs : public LoopbackTest {
 protected:
  ibv_send_wr Request(ibv_wr_opcode opcode, uint64_t wr_id = 1) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &piece_;
    wr.num_sge = 1;
    piece_ = {data.address(), 16, mr->lkey};
    wr.wr.rdma.remote_addr = data.address() + 1024;
    wr.wr.rdma.rkey = mr->rkey;
    return wr;
  }
  ibv_send_wr CompareAndSwap() {
    ibv_send_wr wr = Request(IBV_WR_ATOMIC_CMP_AND_SWP);
    wr.wr.atomic.remote_addr = data.address() + 1024;
    wr.wr.atomic.compare_add = wr.wr.atomic.swap = 0;
    wr.wr.atomic.rkey = mr->rkey;
    return wr;
  }
  int Post(ibv_qp* qp, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  // Posts one request to a and returns its completion.
  ibv_wc Do(const ibv_send_wr& wr) {
    EXPECT_EQ(Post(a.get(), wr), 0);
    return Next(send_cq.get());
  }
  ibv_wc Next(ibv_cq* cq) {
    const Completion completion = PollOne(cq);
    EXPECT_TRUE(completion.found);
    return completion.wc;
  }
  void ExpectNone(ibv_cq* cq) {
    const Completion completion = PollOne(cq, kQuiet_ms);
    EXPECT_FALSE(completion.found) << Describe(completion);
  }
  static void ExpectFailure(const ibv_wc& wc, uint64_t wr_id, ibv_wc_status status) {
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.opcode, 0);
    EXPECT_EQ(wc.byte_len, 0u);
    EXPECT_EQ(wc.vendor_err, 0u);
    EXPECT_EQ(wc.wc_flags, 0u);
    EXPECT_EQ(wc.src_qp, 0u);
  }
  int MoveTo(ibv_qp* qp, ibv_qp_state state, int mask = 0) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
  }

  ibv_sge piece_{};
};

// ---- fields of completions

struct Sender {
  ibv_wr_opcode opcode;
  uint32_t bytes;
  ibv_wc_opcode done;
  unsigned flags;
};

TEST_F(MeasuredVerbs, TheSendersCompletionTellsLengthAndImmediateOfEveryOperation) {
  Connect();
  for (const Sender& sent : {Sender{IBV_WR_SEND, 16, IBV_WC_SEND, 0},
                             {IBV_WR_SEND, 0, IBV_WC_SEND, 0},
                             {IBV_WR_SEND_WITH_IMM, 16, IBV_WC_SEND, IBV_WC_WITH_IMM},
                             {IBV_WR_RDMA_WRITE, 16, IBV_WC_RDMA_WRITE, 0},
                             {IBV_WR_RDMA_WRITE, 0, IBV_WC_RDMA_WRITE, 0},
                             {IBV_WR_RDMA_WRITE_WITH_IMM, 16, IBV_WC_RDMA_WRITE, IBV_WC_WITH_IMM},
                             {IBV_WR_RDMA_READ, 16, IBV_WC_RDMA_READ, 0},
                             {IBV_WR_RDMA_READ, 0, IBV_WC_RDMA_READ, 0}}) {
    SCOPED_TRACE(testing::Message() << "opcode " << sent.opcode << ", bytes " << sent.bytes);
    ASSERT_EQ(PostReceive(b.get(), 7), 0);
    ibv_send_wr wr = Request(sent.opcode);
    piece_.length = sent.bytes;
    wr.imm_data = 0x3412;
    const ibv_wc wc = Do(wr);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, sent.done);
    EXPECT_EQ(wc.byte_len, sent.bytes);
    EXPECT_EQ(wc.wc_flags, sent.flags);
    EXPECT_EQ(wc.src_qp, 0u);
  }
}

TEST_F(MeasuredVerbs, AConnectedReceiverIsToldOfAGlobalRouteButOfNoSource) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 7), 0);
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE_WITH_IMM);
  wr.imm_data = 0x3412;
  (void)Do(wr);
  const ibv_wc wc = Next(receive_cq.get());
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 16u);
  EXPECT_EQ(wc.imm_data, 0x3412u);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
  EXPECT_EQ(wc.src_qp, 0u);
}

TEST_F(MeasuredVerbs, AnAtomicMayHaveMoreRoomThanItNeedsAndSaysItsWholeLength) {
  Connect();
  const ibv_wc wc = Do(CompareAndSwap());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(wc.byte_len, 16u);
}

TEST_F(MeasuredVerbs, AFailedCompletionTellsNothingButItsStatus) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 7), 0);
  ibv_send_wr wr = Request(IBV_WR_RDMA_READ);
  wr.wr.rdma.rkey ^= 0x00f0f000;
  ExpectFailure(Do(wr), 1, IBV_WC_REM_ACCESS_ERR);
  ExpectFailure(Next(receive_cq.get()), 7, IBV_WC_WR_FLUSH_ERR);
}

// ---- keys

TEST_F(MeasuredVerbs, AnRkeyOfAnotherPdGivesNoAccess) {
  Connect();
  const Pd other(ibv_alloc_pd(context.get()));
  const Mr foreign(ibv_reg_mr(other.get(), data.data, data.size, kAllAccess));
  ASSERT_TRUE(foreign);
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = foreign->rkey;
  ExpectFailure(Do(wr), 1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MeasuredVerbs, AnLkeyOfAnotherPdIsALocalError) {
  Connect();
  const Pd other(ibv_alloc_pd(context.get()));
  const Mr foreign(ibv_reg_mr(other.get(), data.data, data.size, kAllAccess));
  ASSERT_TRUE(foreign);
  const ibv_send_wr wr = Request(IBV_WR_SEND);
  piece_.lkey = foreign->lkey;
  ExpectFailure(Do(wr), 1, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(StateOf(b.get()), IBV_QPS_RTS);
}

// ---- windows

TEST_F(MeasuredVerbs, AWindowOfTypeOneHoldsItsRegionUntilItIsGone) {
  Connect();
  Mr region(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess | IBV_ACCESS_MW_BIND));
  Mw window(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
  ASSERT_TRUE(region && window);
  ibv_mw_bind bind{};
  bind.wr_id = 5;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {region.get(), data.address() + 1024, 64, IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(ibv_bind_mw(b.get(), window.get(), &bind), 0);
  const ibv_wc bound = Next(send_cq.get());
  EXPECT_EQ(bound.wr_id, 5u);
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(bound.byte_len, 0u);
  EXPECT_EQ(ibv_dereg_mr(region.get()), EINVAL);
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = window->rkey;
  EXPECT_EQ(Do(wr).status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_dealloc_mw(window.release()), 0);
  EXPECT_EQ(ibv_dereg_mr(region.release()), 0);
}

TEST_F(MeasuredVerbs, LocalInvalidateEndsAWindowOfTypeTwo) {
  Connect();
  const Mr region(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess | IBV_ACCESS_MW_BIND));
  const Mw window(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2));
  ASSERT_TRUE(region && window);
  ibv_send_wr bind = Request(IBV_WR_BIND_MW);
  bind.num_sge = 0;
  bind.bind_mw = {window.get(),
                  ibv_inc_rkey(window->rkey),
                  {region.get(), data.address() + 1024, 64, IBV_ACCESS_REMOTE_WRITE}};
  const uint32_t rkey = bind.bind_mw.rkey;
  ASSERT_EQ(Post(b.get(), bind), 0);
  EXPECT_EQ(Next(send_cq.get()).opcode, IBV_WC_BIND_MW);
  ibv_send_wr write = Request(IBV_WR_RDMA_WRITE);
  write.wr.rdma.rkey = rkey;
  EXPECT_EQ(Do(write).status, IBV_WC_SUCCESS);
  ibv_send_wr invalidate = Request(IBV_WR_LOCAL_INV, 2);
  invalidate.num_sge = 0;
  invalidate.invalidate_rkey = rkey;
  ASSERT_EQ(Post(b.get(), invalidate), 0);
  const ibv_wc wc = Next(send_cq.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  ExpectFailure(Do(write), 1, IBV_WC_REM_ACCESS_ERR);
}

// rxe_check_bind_mw checks remote rights only.
TEST_F(MeasuredVerbs, AWindowMayBeBoundWithLocalRights) {
  Connect();
  const Mr region(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess | IBV_ACCESS_MW_BIND));
  const Mw window(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
  ASSERT_TRUE(region && window);
  ibv_mw_bind bind{};
  bind.wr_id = 5;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {region.get(), data.address() + 1024, 64,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND};
  ASSERT_EQ(ibv_bind_mw(b.get(), window.get(), &bind), 0);
  EXPECT_EQ(Next(send_cq.get()).status, IBV_WC_SUCCESS);
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = window->rkey;
  EXPECT_EQ(Do(wr).status, IBV_WC_SUCCESS);
}

// ---- states

TEST_F(MeasuredVerbs, AQpInRtrReceivesAndStaysThere) {
  Connect();
  const Qp late = Make(IBV_QPT_RC, {8, 8, 1, 1, 0}, nullptr, receive_cq.get());
  ASSERT_TRUE(late);
  ASSERT_EQ(MoveTo(a.get(), IBV_QPS_RESET), 0);
  ASSERT_EQ(Join(a.get(), late.get()), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(late.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  ASSERT_EQ(PostReceive(late.get(), 7), 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = a->qp_num;
  attr.ah_attr = PathToMyself();
  ASSERT_EQ(ibv_modify_qp(late.get(), &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  EXPECT_EQ(Do(Request(IBV_WR_SEND)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(Next(receive_cq.get()).wr_id, 7u);
  EXPECT_EQ(StateOf(late.get()), IBV_QPS_RTR);
}

// rxe never executes work that was posted in SQD, not even in RTS. The emulator does not copy this
// defect.
TEST_F(MeasuredVerbs, WorkPostedToADrainedQpWaitsForRts) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 7), 0);
  ASSERT_EQ(MoveTo(a.get(), IBV_QPS_SQD), 0);
  ASSERT_EQ(Post(a.get(), Request(IBV_WR_SEND)), 0);
  ExpectNone(send_cq.get());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
  EXPECT_EQ(attr.sq_draining, 0);
  ASSERT_EQ(MoveTo(a.get(), IBV_QPS_RTS), 0);
  EXPECT_EQ(Next(send_cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(MeasuredVerbs, GoingFromInitToErrorFlushesTheReceives) {
  Connect();
  ASSERT_EQ(MoveTo(b.get(), IBV_QPS_RESET), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(b.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  for (const uint64_t wr_id : {100, 101}) ASSERT_EQ(PostReceive(b.get(), wr_id), 0);
  ASSERT_EQ(ToError(b.get()), 0);
  ExpectFailure(Next(receive_cq.get()), 100, IBV_WC_WR_FLUSH_ERR);
  ExpectFailure(Next(receive_cq.get()), 101, IBV_WC_WR_FLUSH_ERR);
}

// On the kernel's rxe, 7 means endless, even if the peer has ended.
TEST_F(MeasuredVerbs, SevenRetriesWaitForEver) {
  Connect();
  b.reset();
  ASSERT_EQ(Post(a.get(), Request(IBV_WR_SEND)), 0);
  ExpectNone(send_cq.get());
  EXPECT_EQ(StateOf(a.get()), IBV_QPS_RTS);
}

TEST_F(MeasuredVerbs, InErrorALateSendIsFlushedAndALateReceiveStays) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 99), 0);
  ASSERT_EQ(ToError(b.get()), 0);
  ExpectFailure(Next(receive_cq.get()), 99, IBV_WC_WR_FLUSH_ERR);
  ExpectNone(receive_cq.get());  // the driver's worker has flushed the queue and is idle
  ASSERT_EQ(PostReceive(b.get(), 100), 0);
  ASSERT_EQ(Post(b.get(), Request(IBV_WR_SEND)), 0);
  ExpectFailure(Next(send_cq.get()), 1, IBV_WC_WR_FLUSH_ERR);
  ExpectNone(receive_cq.get());
}

TEST_F(MeasuredVerbs, ADestroyedQpFlushesNothing) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 100), 0);
  b.reset();
  ExpectNone(receive_cq.get());
}

TEST_F(MeasuredVerbs, NoAttributeAtAllIsAChangeOfNothingAndDepthsCannotChange) {
  Connect();
  ibv_qp_attr attr{};
  EXPECT_EQ(ibv_modify_qp(a.get(), &attr, 0), 0);
  EXPECT_EQ(ibv_modify_qp(a.get(), &attr, IBV_QP_CAP), EINVAL);
}

// ---- datagrams

class MeasuredDatagrams : public MeasuredVerbs {
 protected:
  void SetUp() override {
    MeasuredVerbs::SetUp();
    send_cq = MakeCq(64);
    receive_cq = MakeCq(64);
    data = Allocate(8192);
    mr.reset(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess));
    ASSERT_TRUE(mr);
    a = MakeDatagramQp();
    b = MakeDatagramQp();
    ASSERT_TRUE(a && b);
    path = PathToMyself();
  }
  Qp MakeDatagramQp() {
    Qp qp = Make(IBV_QPT_UD, {8, 8, 2, 2, 0}, nullptr, receive_cq.get());
    if (!qp) return qp;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    EXPECT_EQ(ibv_modify_qp(qp.get(), &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
              0);
    EXPECT_EQ(MoveTo(qp.get(), IBV_QPS_RTR), 0);
    EXPECT_EQ(MoveTo(qp.get(), IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
    return qp;
  }
  int Receive(ibv_qp* qp, uint64_t wr_id, uint32_t bytes) {
    ibv_sge piece{data.address() + 4096, bytes, mr->lkey};
    ibv_recv_wr wr{wr_id, nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  ibv_wc SendTo(ibv_qp* to, uint32_t bytes, ibv_wr_opcode opcode = IBV_WR_SEND) {
    if (!ah) ah.reset(ibv_create_ah(pd.get(), &path));
    EXPECT_TRUE(ah);
    ibv_send_wr wr = Request(opcode);
    piece_.length = bytes;
    wr.wr.ud = {ah.get(), to->qp_num, kQkey};
    return Do(wr);
  }
  const uint8_t* route() const { return data.data + 4096; }

  ibv_ah_attr path{};
  Ah ah;
};

TEST_F(MeasuredDatagrams, OneAboveTheMtuSucceedsAndGoesNowhere) {
  ASSERT_EQ(Receive(b.get(), 7, 4096), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  const uint32_t bytes = (128u << port.active_mtu) + 1;
  const ibv_wc wc = SendTo(b.get(), bytes);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, bytes);
  ExpectNone(receive_cq.get());
  EXPECT_EQ(StateOf(a.get()), IBV_QPS_RTS);
}

TEST_F(MeasuredDatagrams, AReceiveWithoutRoomForTheRouteFailsItsQp) {
  ASSERT_EQ(Receive(b.get(), 50, 1024), 0);
  EXPECT_EQ(SendTo(b.get(), 1000).status, IBV_WC_SUCCESS);
  ExpectFailure(Next(receive_cq.get()), 50, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(StateOf(b.get()), IBV_QPS_ERR);
  EXPECT_EQ(StateOf(a.get()), IBV_QPS_RTS);
}

TEST_F(MeasuredDatagrams, AWriteIsALocalError) {
  ExpectFailure(SendTo(b.get(), 16, IBV_WR_RDMA_WRITE), 1, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MeasuredDatagrams, AQpReachesItself) {
  ASSERT_EQ(Receive(a.get(), 7, 1024), 0);
  EXPECT_EQ(SendTo(a.get(), 16).status, IBV_WC_SUCCESS);
  const ibv_wc wc = Next(receive_cq.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.qp_num, a->qp_num);
  EXPECT_EQ(wc.src_qp, a->qp_num);
  EXPECT_EQ(wc.byte_len, 16 + kRouteBytes);
}

TEST_F(MeasuredDatagrams, AnIpv4RouteIsInTheLastTwentyBytesAndTellsTheWayBack) {
  ASSERT_EQ(Receive(b.get(), 7, 1024), 0);
  memset(data.data + 4096, 0xaa, kRouteBytes);
  (void)SendTo(b.get(), 100);
  ibv_wc wc = Next(receive_cq.get());
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(route()[i], 0) << i;
  EXPECT_EQ(route()[20], 0x45);
  EXPECT_EQ(route()[22] << 8 | route()[23], 152);  // IP, UDP, BTH, DETH, 100 bytes, ICRC
  ibv_ah_attr back{};
  ibv_grh grh;
  memcpy(&grh, route(), sizeof grh);
  ASSERT_EQ(ibv_init_ah_from_wc(context.get(), 1, &wc, &grh, &back), 0);
  EXPECT_EQ(back.is_global, 1);
  EXPECT_EQ(back.grh.sgid_index, path.grh.sgid_index);
  EXPECT_EQ(memcmp(&back.grh.dgid, &path.grh.dgid, 16), 0);
  const Ah made(ibv_create_ah_from_wc(pd.get(), &wc, &grh, 1));
  EXPECT_TRUE(made);
}

TEST_F(MeasuredDatagrams, TheLinkLocalGidReachesItsAddress) {
  path.grh.sgid_index = 0;
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &path.grh.dgid), 0);
  ASSERT_EQ(Receive(b.get(), 7, 1024), 0);
  EXPECT_EQ(SendTo(b.get(), 100).status, IBV_WC_SUCCESS);
  ibv_wc wc = Next(receive_cq.get());
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 100 + kRouteBytes);
  ibv_grh grh;
  memcpy(&grh, route(), sizeof grh);
  const Ah back(ibv_create_ah_from_wc(pd.get(), &wc, &grh, 1));
  EXPECT_TRUE(back);
}

// ---- results of calls

class MeasuredCalls : public MeasuredVerbs {};

TEST_F(MeasuredCalls, ReregistrationIsRefused) {
  Connect();
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, data.data, data.size,
                         IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_INPUT)
      << "rights without IBV_REREG_MR_CHANGE_ACCESS";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_rereg_mr(mr.get(), 1 << 10, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(mr.get(), 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MeasuredCalls, EnhancedConnectionEstablishmentIsNotSupported) {
  Connect();
  ibv_ece ece{1, 2, 3};
  EXPECT_EQ(ibv_query_ece(a.get(), &ece), EOPNOTSUPP);
  EXPECT_EQ(ece.vendor_id, 1u) << "left alone";
  ece = {1, 0, 0};
  EXPECT_EQ(ibv_set_ece(a.get(), &ece), EOPNOTSUPP);
}

TEST_F(MeasuredCalls, ImportingTellsWhatTheDescriptorIs) {
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(ibv_import_device(ends[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
  close(ends[0]);
  close(ends[1]);
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ibv_import_device(zero), nullptr);
  EXPECT_EQ(errno, ENODEV);
  close(zero);
  EXPECT_EQ(ibv_import_device(context->cmd_fd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MeasuredCalls, TablesEndWithTheirOwnErrors) {
  ibv_gid gid;
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context.get(), 1, 5000, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context.get(), 1, -1, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  __be16 pkey;
  errno = 0;
  EXPECT_EQ(ibv_query_pkey(context.get(), 1, 9, &pkey), -1);
  EXPECT_EQ(errno, ENOENT);
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(context.get(), 0, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(context.get(), 2, &port), EINVAL);
}

TEST_F(MeasuredCalls, ASourceIndexWithoutAGidIsEnodata) {
  ibv_ah_attr path = PathToMyself();
  path.grh.sgid_index = 99;
  errno = 0;
  EXPECT_EQ(ibv_create_ah(pd.get(), &path), nullptr);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(MeasuredCalls, QpTypesThatAreNotThereTellWhy) {
  const Cq cq = MakeCq();
  const auto error = [&](int type) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = static_cast<ibv_qp_type>(type);
    errno = 0;
    return ibv_create_qp(pd.get(), &init) == nullptr ? errno : 0;
  };
  EXPECT_EQ(error(0), EINVAL);
  EXPECT_EQ(error(1), EINVAL);
  EXPECT_EQ(error(IBV_QPT_RAW_PACKET), EOPNOTSUPP);
  EXPECT_EQ(error(IBV_QPT_XRC_SEND), EOPNOTSUPP);
  EXPECT_EQ(error(IBV_QPT_XRC_RECV), EINVAL);
  EXPECT_EQ(error(IBV_QPT_DRIVER), EOPNOTSUPP);
}

struct Depths {
  ibv_qp_cap asked, got;
};

TEST_F(MeasuredCalls, PiecesAndInlineDataShareTheirRoom) {
  const Cq cq = MakeCq();
  for (const Depths& depths : {Depths{{1, 1, 1, 1, 0}, {1, 1, 1, 1, 16}},
                               {{1, 1, 32, 1, 0}, {1, 1, 32, 1, 512}},
                               {{1, 1, 1, 1, 512}, {1, 1, 32, 1, 512}},
                               {{16, 16, 4, 4, 0}, {16, 16, 4, 4, 64}}}) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = depths.asked;
    init.qp_type = IBV_QPT_RC;
    const Qp qp(ibv_create_qp(pd.get(), &init));
    ASSERT_TRUE(qp);
    EXPECT_EQ(memcmp(&init.cap, &depths.got, sizeof init.cap), 0)
        << init.cap.max_send_wr << ' ' << init.cap.max_recv_wr << ' ' << init.cap.max_send_sge
        << ' ' << init.cap.max_recv_sge << ' ' << init.cap.max_inline_data;
  }
}

// The real library crashes here. The emulator returns an error instead.
TEST_F(MeasuredCalls, AQpWithoutACqIsRefused) {
  ibv_qp_init_attr init{};
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd.get(), &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(MeasuredCalls, WithNothingToTellNoEventComesFromConnectingOrFailing) {
  Connect();
  ASSERT_EQ(PostReceive(b.get(), 7), 0);
  (void)Do(Request(IBV_WR_SEND));
  ASSERT_EQ(ToError(a.get()), 0);
  ASSERT_EQ(ToError(b.get()), 0);
  pollfd poll_for{context->async_fd, POLLIN, 0};
  EXPECT_EQ(poll(&poll_for, 1, kQuiet_ms), 0);
}

}  // namespace
}  // namespace rdma_contract
