// Two connected QPs of one process: the smallest setup for tests of queues and events.
#pragma once

#include <sched.h>

#include <chrono>

#include "tests/contract/support/objects.h"

namespace rdma_contract {

inline void* const kUser = reinterpret_cast<void*>(0x77);

class LoopbackTest : public DeviceTest {
 protected:
  // b's receives complete on receive_cq, which is on `channel`. All other work completes on
  // send_cq.
  void Connect(ibv_qp_cap cap = {}, ibv_comp_channel* channel = nullptr, int receive_cqe = 64,
               ibv_srq* srq = nullptr, ibv_qp_type type = IBV_QPT_RC) {
    if (cap.max_send_wr == 0) cap = {32, 32, 4, 4, 0};
    send_cq = MakeCq(128);
    receive_cq = MakeCq(receive_cqe, channel, kUser);
    ASSERT_TRUE(send_cq && receive_cq);
    data = Allocate(4096);
    mr.reset(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess));
    ASSERT_TRUE(mr);
    a = Make(type, cap, nullptr, send_cq.get());
    if (srq != nullptr) cap.max_recv_wr = 0;
    b = Make(type, cap, srq, receive_cq.get());
    ASSERT_TRUE(a && b);
    ASSERT_EQ(Join(a.get(), b.get()), 0);
    ASSERT_EQ(Join(b.get(), a.get()), 0);
  }
  Qp Make(ibv_qp_type type, const ibv_qp_cap& cap, ibv_srq* srq, ibv_cq* receives) {
    ibv_qp_init_attr init{};
    init.send_cq = send_cq.get();
    init.recv_cq = receives;
    init.srq = srq;
    init.cap = cap;
    init.qp_type = type;
    return Qp(ibv_create_qp(pd.get(), &init));
  }
  int Join(ibv_qp* qp, ibv_qp* peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllAccess;
    int result = ibv_modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp_num;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = PathToMyself();
    const bool rc = qp->qp_type == IBV_QPT_RC;
    if (result == 0)
      result = ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN |
                                 (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    if (result == 0)
      result = ibv_modify_qp(
          qp, &attr,
          IBV_QP_STATE | IBV_QP_SQ_PSN |
              (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                  : 0));
    return result;
  }

  ibv_sge Piece() { return {data.address(), 16, mr->lkey}; }
  int PostReceive(ibv_qp* qp, uint64_t wr_id) {
    ibv_sge piece = Piece();
    ibv_recv_wr wr{wr_id, nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  int PostSrqReceive(ibv_srq* srq, uint64_t wr_id) {
    ibv_sge piece = Piece();
    ibv_recv_wr wr{wr_id, nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  int PostSend(ibv_qp* qp, uint64_t wr_id, unsigned flags) {
    ibv_sge piece = Piece();
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  Completion PollOne(ibv_cq* cq, int limit_ms = kPatience_ms) {
    Completion completion;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
      const int got = ibv_poll_cq(cq, 1, &completion.wc);
      completion.found = got > 0;
      if (got != 0 || std::chrono::steady_clock::now() >= until) return completion;
      sched_yield();
    }
  }
  int ToError(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }
  ibv_qp_state StateOf(ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }

  Buffer data;
  Mr mr;
  Cq send_cq, receive_cq;
  Qp a, b;
};

}  // namespace rdma_contract
