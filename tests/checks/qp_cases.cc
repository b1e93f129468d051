#include <errno.h>

#include <cstdint>
#include <vector>

#include "usage.h"

void FillRtr(const Verbs& verbs, ibv_qp_attr& attr);

namespace {

void Connected(const Setup& setup, bool breaks, void (*run)(Verbs&, bool)) {
  Verbs verbs(setup);
  verbs.Connect();
  run(verbs, breaks);
  verbs.Destroy();
}

void SendInInit(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_sge sge = verbs.Sge();
  if (breaks) verbs.Post(verbs.Write(&sge));
  verbs.Destroy();
}

void ReceiveInReset(bool breaks) {
  Verbs verbs;
  verbs.MakeQp();
  if (!breaks) verbs.ToInit();
  const int error = verbs.PostReceive(verbs.Sge());
  CHECK((error != 0) == breaks);
  verbs.Destroy();
}

// Posts more writes than the queue holds. Polls each completion when the rule is kept.
void FillSendQueue(bool breaks) {
  Connected({.cqe = 64}, breaks, [](Verbs& verbs, bool overfills) {
    ibv_sge sge = verbs.Sge();
    for (uint32_t i = 0; i < verbs.cap.max_send_wr + 1; i++) {
      const int error = verbs.Post(verbs.Write(&sge));
      CHECK(error == 0 || overfills);
      if (!overfills) CHECK(verbs.Poll().status == IBV_WC_SUCCESS);
    }
  });
}

void FillUnsignalled(bool breaks) {
  Connected({.cqe = 64}, breaks, [](Verbs& verbs, bool overfills) {
    ibv_sge sge = verbs.Sge();
    for (uint32_t i = 0; i < verbs.cap.max_send_wr + 1; i++) {
      ibv_send_wr wr = verbs.Write(&sge);
      const bool signals = !overfills && i % 2 == 1;
      if (!signals) wr.send_flags = 0;
      const int error = verbs.Post(wr);
      CHECK(error == 0 || overfills);
      if (signals) CHECK(verbs.Poll().status == IBV_WC_SUCCESS);
    }
  });
}

void FillReceiveQueue(bool breaks) {
  Connected({.cqe = 64}, breaks, [](Verbs& verbs, bool overfills) {
    for (uint32_t i = 0; i < verbs.cap.max_recv_wr + (overfills ? 1 : 0); i++) {
      const int error = verbs.PostReceive(verbs.Sge());
      CHECK(error == 0 || overfills);
    }
  });
}

void FillSrq(bool breaks) {
  Verbs verbs({.has_srq = true});
  ibv_srq_attr attr{};
  CHECK(ibv_query_srq(verbs.srq, &attr) == 0);
  ibv_sge sge = verbs.Sge();
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  for (uint32_t i = 0; i < attr.max_wr + (breaks ? 1 : 0); i++) {
    const int error = ibv_post_srq_recv(verbs.srq, &wr, &bad);
    CHECK(error == 0 || breaks);
  }
  verbs.Destroy();
}

void TooManySges(bool breaks) {
  Connected({}, breaks, [](Verbs& verbs, bool exceeds) {
    std::vector<ibv_sge> sges(verbs.cap.max_send_sge + 1, verbs.Sge());
    ibv_send_wr wr = verbs.Write(sges.data());
    wr.num_sge = static_cast<int>(verbs.cap.max_send_sge) + (exceeds ? 1 : 0);
    const int error = verbs.Post(wr);
    if (!exceeds) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

void LongInline(bool breaks) {
  Connected({}, breaks, [](Verbs& verbs, bool exceeds) {
    ibv_sge sge = verbs.Sge(verbs.cap.max_inline_data + (exceeds ? 1 : 0));
    ibv_send_wr wr = verbs.Write(&sge);
    wr.send_flags |= IBV_SEND_INLINE;
    const int error = verbs.Post(wr);
    if (!exceeds) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

void ReadOnUc(bool breaks) {
  Connected({.type = IBV_QPT_UC}, breaks, [](Verbs& verbs, bool reads) {
    ibv_sge sge = verbs.Sge();
    ibv_send_wr wr = verbs.Write(&sge);
    if (reads) wr.opcode = IBV_WR_RDMA_READ;
    const int error = verbs.Post(wr);
    if (!reads) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

ibv_ah* MakeAh(const Verbs& verbs) {
  ibv_qp_attr attr{};
  FillRtr(verbs, attr);
  ibv_ah* const ah = ibv_create_ah(verbs.pd, &attr.ah_attr);
  CHECK(ah != nullptr);
  return ah;
}

void SendWithoutAh(bool breaks) {
  Connected({.type = IBV_QPT_UD}, breaks, [](Verbs& verbs, bool lacks) {
    ibv_ah* const ah = MakeAh(verbs);
    ibv_sge sge = verbs.Sge();
    ibv_send_wr wr = verbs.Write(&sge);
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {lacks ? nullptr : ah, verbs.qp->qp_num, 0x11};
    const int error = verbs.Post(wr);
    CHECK(lacks ? error == EINVAL : error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_ah(ah) == 0);
  });
}

void ReceiveWithoutGrh(bool breaks) {
  Connected({.type = IBV_QPT_UD}, breaks, [](Verbs& verbs, bool is_short) {
    CHECK(verbs.PostReceive(verbs.Sge(is_short ? 39 : 40)) == 0);
  });
}

ibv_send_wr Add(const Verbs& verbs, ibv_sge* sge) {
  ibv_send_wr wr = verbs.Write(sge);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic = {reinterpret_cast<uint64_t>(verbs.buffer) + 2048, 1, 0, verbs.mr->rkey};
  return wr;
}

void UnalignedAtomic(bool breaks) {
  Connected({}, breaks, [](Verbs& verbs, bool is_odd) {
    ibv_sge sge = verbs.Sge(8);
    ibv_send_wr wr = Add(verbs, &sge);
    if (is_odd) wr.wr.atomic.remote_addr += 4;
    const int error = verbs.Post(wr);
    if (!is_odd) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

void ShortAtomic(bool breaks) {
  Connected({}, breaks, [](Verbs& verbs, bool is_short) {
    ibv_sge sge = verbs.Sge(is_short ? 4 : 8);
    const int error = verbs.Post(Add(verbs, &sge));
    if (!is_short) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

ibv_send_wr Read(const Verbs& verbs, ibv_sge* sge) {
  ibv_send_wr wr = verbs.Write(sge);
  wr.opcode = IBV_WR_RDMA_READ;
  return wr;
}

void InlineRead(bool breaks) {
  Connected({}, breaks, [](Verbs& verbs, bool is_inline) {
    ibv_sge sge = verbs.Sge();
    ibv_send_wr wr = Read(verbs, &sge);
    if (is_inline) wr.send_flags |= IBV_SEND_INLINE;
    const int error = verbs.Post(wr);
    if (!is_inline) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
  });
}

void ReadWithoutDepth(bool breaks) {
  Connected({.max_rd_atomic = static_cast<uint8_t>(breaks ? 0 : 1)}, breaks,
            [](Verbs& verbs, bool lacks) {
              ibv_sge sge = verbs.Sge();
              const int error = verbs.Post(Read(verbs, &sge));
              if (!lacks) CHECK(error == 0 && verbs.Poll().status == IBV_WC_SUCCESS);
            });
}

constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

void MissingAttribute(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_qp_attr attr{};
  FillRtr(verbs, attr);
  const int error = ibv_modify_qp(verbs.qp, &attr, kRtrMask & ~(breaks ? IBV_QP_MIN_RNR_TIMER : 0));
  CHECK((error != 0) == breaks);
  verbs.Destroy();
}

void SuperfluousAttribute(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_qp_attr attr{};
  FillRtr(verbs, attr);
  const int error = ibv_modify_qp(verbs.qp, &attr, kRtrMask | (breaks ? IBV_QP_SQ_PSN : 0));
  CHECK((error != 0) == breaks);
  verbs.Destroy();
}

void SkipState(bool breaks) {
  Verbs verbs;
  verbs.MakeQp();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  if (breaks) {
    CHECK(ibv_modify_qp(verbs.qp, &attr, IBV_QP_STATE) != 0);
  } else {
    verbs.Connect();
  }
  verbs.Destroy();
}

// Makes a queue pair ready to receive, then modifies it to RTS.
template <class Set>
int ToRts(Verbs& verbs, Set set) {
  verbs.ToInit();
  verbs.ToRtr();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  set(attr);
  return ibv_modify_qp(verbs.qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

template <auto kMember, int kBroken>
void Rts(bool breaks) {
  Verbs verbs;
  const int error = ToRts(verbs, [&](ibv_qp_attr& attr) {
    if (breaks) attr.*kMember = kBroken;
  });
  if (!breaks) CHECK(error == 0);
  verbs.Destroy();
}

void RnrTimer(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_qp_attr attr{};
  FillRtr(verbs, attr);
  if (breaks) attr.min_rnr_timer = 0;
  CHECK(ibv_modify_qp(verbs.qp, &attr, kRtrMask) == 0);
  verbs.Destroy();
}

// The kernel's ib_cm_init_qp_rtr_attr gives min_rnr_timer 0. Passing its attributes on is no
// mistake.
void GivenRnrTimer(bool breaks) {
  Pair pair;
  pair.Request();
  rdma_cm_event* const event = pair.passive.Take(RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const id = pair.passive.id = event->id;
  CHECK(rdma_ack_cm_event(event) == 0);
  ibv_pd* const pd = ibv_alloc_pd(id->verbs);
  ibv_cq* const cq = ibv_create_cq(id->verbs, 4, nullptr, nullptr, 0);
  CHECK(pd != nullptr && cq != nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  CHECK(qp != nullptr);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = state;
    CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0);
    // These are no longer the attributes that librdmacm gave.
    if (breaks) attr.rq_psn ^= 1;
    CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
  }
  CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
  CHECK(rdma_reject(id, nullptr, 0) == 0);
  pair.active.Await(RDMA_CM_EVENT_REJECTED);
  pair.Destroy();
}

void LargeQp(bool breaks) {
  Verbs verbs;
  if (breaks) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = verbs.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1u << 30, 1, 1, 1, 0};
    CHECK(ibv_create_qp(verbs.pd, &init) == nullptr);
  } else {
    verbs.MakeQp();
  }
  verbs.Destroy();
}

void DestroyQpTwice(bool breaks) {
  Verbs verbs;
  verbs.MakeQp();
  CHECK(ibv_destroy_qp(verbs.qp) == 0);
  // Without the call that the layer refuses, the library would use freed memory.
  if (breaks) CHECK(ibv_destroy_qp(verbs.qp) == EINVAL);
  verbs.qp = nullptr;
  verbs.Destroy();
}

void ReceiveBesideSrq(bool breaks) {
  Verbs verbs({.has_srq = true});
  verbs.ToInit();
  if (breaks) verbs.PostReceive(verbs.Sge());
  verbs.Destroy();
}

void LargePathMtu(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_port_attr port{};
  CHECK(ibv_query_port(verbs.context, 1, &port) == 0);
  CHECK(port.active_mtu < IBV_MTU_4096);
  ibv_qp_attr attr{};
  FillRtr(verbs, attr);
  attr.path_mtu = breaks ? IBV_MTU_4096 : port.active_mtu;
  const int result =
      ibv_modify_qp(verbs.qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  CHECK(result == 0 || breaks);
  verbs.Destroy();
}

void DestroyUsedSrq(bool breaks) {
  Verbs verbs({.has_srq = true});
  verbs.MakeQp();
  if (breaks) CHECK(ibv_destroy_srq(verbs.srq) == EBUSY);
  verbs.Destroy();
}

void DestroyAhTwice(bool breaks) {
  Verbs verbs({.type = IBV_QPT_UD});
  verbs.MakeQp();
  ibv_ah* const ah = MakeAh(verbs);
  CHECK(ibv_destroy_ah(ah) == 0);
  if (breaks) CHECK(ibv_destroy_ah(ah) == EINVAL);
  verbs.Destroy();
}

void DestroySrqTwice(bool breaks) {
  Verbs verbs({.has_srq = true});
  CHECK(ibv_destroy_srq(verbs.srq) == 0);
  if (breaks) CHECK(ibv_destroy_srq(verbs.srq) == EINVAL);
  verbs.srq = nullptr;
  verbs.Destroy();
}

}  // namespace

const std::vector<Case> kQpCases = {
    {"QP-001", SendInInit},
    {"QP-002", ReceiveInReset},
    {"QP-003", FillSendQueue},
    {"QP-004", FillReceiveQueue},
    {"QP-005", FillSrq},
    {"QP-006", TooManySges},
    {"QP-007", LongInline},
    {"QP-008", FillUnsignalled},
    {"QP-009", ReadOnUc},
    {"QP-010", SendWithoutAh},
    {"QP-012", ReceiveWithoutGrh},
    {"QP-013", UnalignedAtomic},
    {"QP-014", ShortAtomic},
    {"QP-015", InlineRead},
    {"QP-016", ReadWithoutDepth},
    {"QP-017", MissingAttribute},
    {"QP-018", SuperfluousAttribute},
    {"QP-019", SkipState},
    {"QP-020", Rts<&ibv_qp_attr::retry_cnt, 0>},
    {"QP-021", Rts<&ibv_qp_attr::rnr_retry, 0>},
    {"QP-022", RnrTimer},
    {"QP-022@given", GivenRnrTimer},
    {"QP-023", Rts<&ibv_qp_attr::timeout, 0>},
    {"QP-024", LargePathMtu},
    {"QP-026", Rts<&ibv_qp_attr::max_rd_atomic, 255>},
    {"QP-027", LargeQp},
    {"QP-028", DestroyQpTwice},
    {"QP-031", ReceiveBesideSrq},
    {"QP-032", DestroyUsedSrq},
    {"QP-033", DestroyAhTwice},
    {"QP-034", DestroySrqTwice},
};
