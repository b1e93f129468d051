// Extended queues: ibv_create_qp_ex, ibv_create_cq_ex, ibv_wr_* and ibv_start_poll.
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "usage.h"

namespace {

// A queue pair of extended queues.
struct Extended {
  Verbs verbs;
  ibv_cq_ex* cq = nullptr;
  ibv_qp_ex* qp = nullptr;
  uint64_t remote = reinterpret_cast<uint64_t>(verbs.buffer) + 2048;  // of Write

  explicit Extended(const Setup& setup = {}) : verbs(setup) {
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = static_cast<uint32_t>(setup.cqe);
    cq_attr.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN;
    CHECK((cq = ibv_create_cq_ex(verbs.context, &cq_attr)) != nullptr);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {setup.max_send_wr, setup.max_recv_wr, 1, 1, 16};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = verbs.pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
    CHECK((verbs.qp = ibv_create_qp_ex(verbs.context, &attr)) != nullptr);
    verbs.cap = attr.cap;
    CHECK((qp = ibv_qp_to_qp_ex(verbs.qp)) != nullptr);
  }
  // To itself, or to another one.
  void Connect(const Extended* to = nullptr) {
    if (to != nullptr) {
      verbs.peer = to->verbs.qp->qp_num;
      remote = reinterpret_cast<uint64_t>(to->verbs.buffer);
    }
    verbs.Connect();
  }
  void Write(uint32_t length, unsigned flags = IBV_SEND_SIGNALED, uint32_t rkey = 0) const {
    qp->wr_id = 1;
    qp->wr_flags = flags;
    ibv_wr_rdma_write(qp, rkey != 0 ? rkey : verbs.mr->rkey, remote);
    ibv_wr_set_sge(qp, verbs.mr->lkey, reinterpret_cast<uint64_t>(verbs.buffer), length);
  }
  // Waits for a completion, which is shown until ibv_end_poll.
  void StartPoll() const {
    ibv_poll_cq_attr attr{};
    int error = 0;
    while ((error = ibv_start_poll(cq, &attr)) == ENOENT) sched_yield();
    CHECK(error == 0);
  }
  void Poll(ibv_wc_status status = IBV_WC_SUCCESS) const {
    StartPoll();
    CHECK(cq->status == status);
    ibv_end_poll(cq);
  }
  void Destroy() {
    CHECK(ibv_destroy_qp(verbs.qp) == 0);
    verbs.qp = nullptr;
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
    verbs.Destroy();
  }
};

void WriteOutsideBatch(bool breaks) {
  Extended extended;
  extended.Connect();
  if (breaks) {
    extended.qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(extended.qp, extended.verbs.mr->rkey, 0);
    return;
  }
  ibv_wr_start(extended.qp);
  extended.Write(16);
  ibv_wr_abort(extended.qp);
  ibv_wr_start(extended.qp);
  extended.Write(16, 0);
  extended.Write(16);
  CHECK(ibv_wr_complete(extended.qp) == 0);
  extended.Poll();
  extended.Destroy();
}

void ReadFailedOpcode(bool breaks) {
  Extended extended;
  extended.Connect();
  ibv_wr_start(extended.qp);
  extended.Write(16, IBV_SEND_SIGNALED, breaks ? extended.verbs.mr->rkey ^ 0x5555u : 0);
  CHECK(ibv_wr_complete(extended.qp) == 0);
  extended.StartPoll();
  CHECK((extended.cq->status != IBV_WC_SUCCESS) == breaks);
  CHECK(ibv_wc_read_opcode(extended.cq) == IBV_WC_RDMA_WRITE || breaks);
  ibv_end_poll(extended.cq);
  extended.Destroy();
}

void EndWithoutPoll(bool breaks) {
  Extended extended;
  extended.Connect();
  ibv_poll_cq_attr attr{};
  CHECK(ibv_start_poll(extended.cq, &attr) == ENOENT);
  if (breaks) ibv_end_poll(extended.cq);
  extended.Destroy();
}

// ---- the rules of ordinary queues

void FillByBatches(bool breaks) {
  Extended extended({.cqe = 64});
  extended.Connect();
  for (uint32_t i = 0; i < extended.verbs.cap.max_send_wr + 1; i++) {
    ibv_wr_start(extended.qp);
    extended.Write(16);
    if (ibv_wr_complete(extended.qp) != 0) CHECK(breaks);
    if (!breaks) extended.Poll();
  }
  extended.Destroy();
}

void OverrunCqEx(bool breaks) {
  Extended extended({.max_send_wr = 64, .cqe = 1});
  extended.Connect();
  const auto size = static_cast<uint32_t>(extended.cq->cqe);
  for (uint32_t i = 0; i < size + (breaks ? 1 : 0); i++) {
    if (i >= extended.verbs.cap.max_send_wr) break;
    ibv_wr_start(extended.qp);
    extended.Write(16);
    CHECK(ibv_wr_complete(extended.qp) == 0);
  }
  if (!breaks) {
    for (uint32_t i = 0; i < size; i++) extended.Poll();
  }
  extended.Destroy();
}

void OutsideRegion(bool breaks) {
  Extended extended;
  extended.Connect();
  ibv_wr_start(extended.qp);
  extended.Write(breaks ? sizeof extended.verbs.buffer + 1 : 16);
  CHECK(ibv_wr_complete(extended.qp) == 0);
  extended.Poll(breaks ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
  extended.Destroy();
}

void WrongRkey(bool breaks) {
  Extended requester, responder;
  requester.Connect(&responder);
  responder.Connect(&requester);
  ibv_wr_start(requester.qp);
  requester.Write(16, IBV_SEND_SIGNALED, responder.verbs.mr->rkey ^ (breaks ? 0x5555u : 0));
  CHECK(ibv_wr_complete(requester.qp) == 0);
  requester.Poll(breaks ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
  responder.Destroy();
  requester.Destroy();
}

void LeaveCqEx(bool breaks) {
  Verbs verbs;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  ibv_cq_ex* const cq = ibv_create_cq_ex(verbs.context, &attr);
  CHECK(cq != nullptr);
  if (!breaks) CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  if (!breaks) verbs.Destroy();
}

}  // namespace

const std::vector<Case> kExtendedCases = {
    {"QP-035", WriteOutsideBatch},    {"CQ-014", ReadFailedOpcode},
    {"CQ-015", EndWithoutPoll},       {"QP-003@extended", FillByBatches},
    {"CQ-001@extended", OverrunCqEx}, {"MR-001@extended", OutsideRegion},
    {"MR-009@extended", WrongRkey},   {"EXIT-005@extended", LeaveCqEx},
};
