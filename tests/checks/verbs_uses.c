/* Uses of libibverbs, by rule. */
#include "uses.h"

static char memory[64];

static const enum ibv_qp_attr_mask kInit =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const enum ibv_qp_attr_mask kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const enum ibv_qp_attr_mask kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                          IBV_QP_MAX_QP_RD_ATOMIC;

/* Attributes that are right for every transition of a queue pair that is its own peer. */
static struct ibv_qp_attr good_attributes(struct ibv_qp* qp) {
  struct ibv_qp_attr attr = {.path_mtu = IBV_MTU_256,
                             .dest_qp_num = qp->qp_num,
                             .port_num = 1,
                             .max_rd_atomic = 1,
                             .max_dest_rd_atomic = 1,
                             .min_rnr_timer = 12,
                             .timeout = 14,
                             .retry_cnt = 7,
                             .rnr_retry = 7,
                             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}}};
  attr.ah_attr.grh.sgid_index = 1;
  CHECK(!ibv_query_gid(qp->context, 1, 1, &attr.ah_attr.grh.dgid));
  return attr;
}

static int moves(struct ibv_qp* qp, struct ibv_qp_attr* attr, enum ibv_qp_state to, int mask) {
  attr->qp_state = to;
  return ibv_modify_qp(qp, attr, mask);
}

/* A queue pair, and attributes for its transitions. */
struct transition {
  struct device device;
  struct ibv_qp* qp;
  struct ibv_qp_attr attr;
};
static struct transition begin(void) {
  struct transition made = {.device = make_device()};
  made.qp = make_qp(&made.device);
  made.attr = good_attributes(made.qp);
  return made;
}
static void end(struct transition* transition) {
  CHECK(!ibv_destroy_qp(transition->qp));
  destroy_device(&transition->device);
}

static void qp_017(bool breaks) {
  struct transition t = begin();
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_INIT, breaks ? kInit & ~IBV_QP_PORT : kInit) == !breaks);
  end(&t);
}
static void qp_018(bool breaks) {
  struct transition t = begin();
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_INIT, breaks ? kInit | IBV_QP_RETRY_CNT : kInit) == !breaks);
  end(&t);
}
static void qp_019(bool breaks) {
  struct transition t = begin();
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_INIT, kInit));
  if (!breaks) CHECK(!moves(t.qp, &t.attr, IBV_QPS_RTR, kRtr));
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_RTS, kRts) == !breaks);
  end(&t);
}

/* Moves to RTS with the attributes of the transition. */
static void becomes_ready(struct transition* t) {
  CHECK(!moves(t->qp, &t->attr, IBV_QPS_INIT, kInit));
  CHECK(!moves(t->qp, &t->attr, IBV_QPS_RTR, kRtr));
  CHECK(!moves(t->qp, &t->attr, IBV_QPS_RTS, kRts));
  end(t);
}
static void qp_020(bool breaks) {
  struct transition t = begin();
  t.attr.retry_cnt = breaks ? 0 : 1;
  becomes_ready(&t);
}
static void qp_021(bool breaks) {
  struct transition t = begin();
  t.attr.rnr_retry = breaks ? 0 : 1;
  becomes_ready(&t);
}
static void qp_022(bool breaks) {
  struct transition t = begin();
  t.attr.min_rnr_timer = breaks ? 0 : 1;
  becomes_ready(&t);
}
static void qp_023(bool breaks) {
  struct transition t = begin();
  t.attr.timeout = breaks ? 0 : 1;
  becomes_ready(&t);
}
static void qp_026(bool breaks) {
  struct transition t = begin();
  struct ibv_device_attr limits;
  CHECK(!ibv_query_device(t.device.context, &limits));
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_INIT, kInit));
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_RTR, kRtr));
  t.attr.max_rd_atomic = (uint8_t)(limits.max_qp_init_rd_atom + breaks);
  CHECK(!moves(t.qp, &t.attr, IBV_QPS_RTS, kRts) == !breaks);
  end(&t);
}

static void qp_027(bool breaks) {
  struct device device = make_device();
  struct ibv_device_attr limits;
  CHECK(!ibv_query_device(device.context, &limits));
  struct ibv_qp_init_attr init = {.send_cq = device.cq,
                                  .recv_cq = device.cq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {4, 4, (uint32_t)(limits.max_sge + breaks), 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(device.pd, &init);
  CHECK(!qp == breaks);
  if (qp) CHECK(!ibv_destroy_qp(qp));
  destroy_device(&device);
}

static void qp_028(bool breaks) {
  struct device device = make_device();
  struct ibv_qp* qp = make_qp(&device);
  CHECK(!ibv_destroy_qp(qp));
  if (breaks) CHECK(ibv_destroy_qp(qp));
  destroy_device(&device);
}

static struct ibv_srq* make_srq(struct device* device) {
  struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(device->pd, &init);
  CHECK(srq);
  return srq;
}

static void qp_032(bool breaks) {
  struct device device = make_device();
  struct ibv_srq* srq = make_srq(&device);
  struct ibv_qp_init_attr init = {.send_cq = device.cq,
                                  .recv_cq = device.cq,
                                  .srq = srq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {4, 0, 1, 0, 0}};
  struct ibv_qp* qp = ibv_create_qp(device.pd, &init);
  CHECK(qp);
  if (breaks) CHECK(ibv_destroy_srq(srq));
  CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
  destroy_device(&device);
}

static struct ibv_ah* make_ah(struct device* device) {
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
  attr.grh.sgid_index = 1;
  CHECK(!ibv_query_gid(device->context, 1, 1, &attr.grh.dgid));
  struct ibv_ah* ah = ibv_create_ah(device->pd, &attr);
  CHECK(ah);
  return ah;
}

static void qp_033(bool breaks) {
  struct device device = make_device();
  struct ibv_ah* ah = make_ah(&device);
  CHECK(!ibv_destroy_ah(ah));
  if (breaks) CHECK(ibv_destroy_ah(ah));
  destroy_device(&device);
}

static void qp_034(bool breaks) {
  struct device device = make_device();
  struct ibv_srq* srq = make_srq(&device);
  CHECK(!ibv_destroy_srq(srq));
  if (breaks) CHECK(ibv_destroy_srq(srq));
  destroy_device(&device);
}

/* ---- memory */

static void mr_006(bool breaks) {
  struct device device = make_device();
  const int access = IBV_ACCESS_REMOTE_WRITE | (breaks ? 0 : IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr* mr = ibv_reg_mr(device.pd, memory, sizeof memory, access);
  CHECK(!mr == breaks);
  if (mr) CHECK(!ibv_dereg_mr(mr));
  destroy_device(&device);
}

static void mr_011(bool breaks) {
  struct device device = make_device();
  struct ibv_mr* mr = ibv_reg_mr(device.pd, memory, sizeof memory, 0);
  CHECK(mr);
  if (breaks) CHECK(ibv_dealloc_pd(device.pd));
  CHECK(!ibv_dereg_mr(mr));
  destroy_device(&device);
}

static void mr_012(bool breaks) {
  struct device device = make_device();
  struct ibv_mr* mr = ibv_reg_mr(device.pd, memory, sizeof memory, 0);
  CHECK(mr && !ibv_dereg_mr(mr));
  if (breaks) CHECK(ibv_dereg_mr(mr));
  destroy_device(&device);
}

static void mr_013(bool breaks) {
  struct device device = make_device();
  struct ibv_pd* pd = ibv_alloc_pd(device.context);
  CHECK(pd && !ibv_dealloc_pd(pd));
  if (breaks) CHECK(ibv_dealloc_pd(pd));
  destroy_device(&device);
}

/* ---- completion queues */

/* A connection whose active side has a CQ with a channel, and one event of it that was taken. */
struct notified {
  struct pair pair;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
};
static struct notified take_cq_event(void) {
  struct notified made = {.pair = requested(NULL)};
  struct rdma_cm_id* id = made.pair.passive.id;
  CHECK(made.pd = ibv_alloc_pd(id->verbs));
  CHECK(made.channel = ibv_create_comp_channel(id->verbs));
  CHECK(made.cq = ibv_create_cq(id->verbs, 4, NULL, made.channel, 0));
  struct ibv_qp_init_attr init = {
      .send_cq = made.cq, .recv_cq = made.cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  CHECK(!rdma_create_qp(id, made.pd, &init));
  struct rdma_conn_param good = good_parameters();
  struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
  CHECK(!ibv_post_recv(id->qp, &receive, &bad));
  CHECK(!rdma_accept(id, &good));
  take_and_ack(made.pair.active.channel, RDMA_CM_EVENT_ESTABLISHED);
  take_and_ack(made.pair.passive.channel, RDMA_CM_EVENT_ESTABLISHED);
  CHECK(!ibv_req_notify_cq(made.cq, 0));
  disconnect(&made.pair); /* flushes the receive */
  CHECK(!rdma_disconnect(id));
  struct ibv_cq* cq;
  void* context;
  CHECK(!ibv_get_cq_event(made.channel, &cq, &context) && cq == made.cq);
  rdma_destroy_qp(id);
  return made;
}
static void end_notified(struct notified* made) {
  CHECK(!ibv_destroy_cq(made->cq) && !ibv_destroy_comp_channel(made->channel));
  CHECK(!ibv_dealloc_pd(made->pd));
  destroy_pair(&made->pair);
}

static void cq_004(bool breaks) {
  struct notified made = take_cq_event();
  if (breaks) {
    ack_cq_when_blocked(made.cq);
  } else {
    ibv_ack_cq_events(made.cq, 1);
  }
  end_notified(&made);
}

static void cq_005(bool breaks) {
  struct notified made = take_cq_event();
  ibv_ack_cq_events(made.cq, breaks ? 2 : 1);
  if (!breaks) end_notified(&made); /* else ibv_destroy_cq would wait for ever */
}

static void cq_007(bool breaks) {
  struct device device = make_device();
  struct ibv_qp* qp = make_qp(&device);
  if (breaks) CHECK(ibv_destroy_cq(device.cq));
  CHECK(!ibv_destroy_qp(qp));
  destroy_device(&device);
}

static void cq_008(bool breaks) {
  struct device device = make_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  struct ibv_cq* cq = ibv_create_cq(device.context, 4, NULL, channel, 0);
  CHECK(channel && cq);
  if (breaks) CHECK(ibv_destroy_comp_channel(channel));
  CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
  destroy_device(&device);
}

static void cq_010(bool breaks) {
  struct device device = make_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  CHECK(channel && !ibv_destroy_comp_channel(channel));
  if (breaks) CHECK(ibv_destroy_comp_channel(channel));
  destroy_device(&device);
}

static void cq_013(bool breaks) {
  struct device device = make_device();
  struct ibv_cq* cq = ibv_create_cq(device.context, 4, NULL, NULL, 0);
  CHECK(cq && !ibv_destroy_cq(cq));
  if (breaks) CHECK(ibv_destroy_cq(cq));
  destroy_device(&device);
}

/* ---- exit */

static void exit_004(bool breaks) {
  struct device device = make_device();
  struct ibv_qp* qp = make_qp(&device);
  if (breaks) return;
  CHECK(!ibv_destroy_qp(qp));
  destroy_device(&device);
}
static void exit_005(bool breaks) {
  struct device device = make_device();
  if (!breaks) return destroy_device(&device);
  CHECK(!ibv_dealloc_pd(device.pd));
}
static void exit_006(bool breaks) {
  struct ibv_context* context = open_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  CHECK(channel);
  if (!breaks) CHECK(!ibv_destroy_comp_channel(channel) && !ibv_close_device(context));
}
static void exit_007(bool breaks) {
  struct ibv_context* context = open_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, 0);
  CHECK(mr);
  if (!breaks) CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}
static void exit_008(bool breaks) {
  struct ibv_context* context = open_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  CHECK(pd);
  if (!breaks) CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}
static void exit_009(bool breaks) {
  struct device device = make_device();
  struct ibv_srq* srq = make_srq(&device);
  CHECK(!ibv_destroy_cq(device.cq));
  if (!breaks) {
    CHECK(!ibv_destroy_srq(srq) && !ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
  }
}
static void exit_010(bool breaks) {
  struct device device = make_device();
  struct ibv_ah* ah = make_ah(&device);
  CHECK(!ibv_destroy_cq(device.cq));
  if (!breaks) {
    CHECK(!ibv_destroy_ah(ah) && !ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
  }
}
static void exit_011(bool breaks) {
  struct ibv_context* context = open_device();
  if (!breaks) CHECK(!ibv_close_device(context));
}
static void exit_012(bool breaks) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list);
  if (!breaks) ibv_free_device_list(list);
}

const struct use kVerbsUses[] = {
    {.rule = "QP-017", qp_017},
    {.rule = "QP-018", qp_018},
    {.rule = "QP-019", qp_019},
    {.rule = "QP-020", qp_020},
    {.rule = "QP-021", qp_021},
    {.rule = "QP-022", qp_022},
    {.rule = "QP-023", qp_023},
    {.rule = "QP-026", qp_026},
    {.rule = "QP-027", qp_027},
    {.rule = "QP-028", qp_028},
    {.rule = "QP-032", qp_032},
    {.rule = "QP-033", qp_033},
    {.rule = "QP-034", qp_034},
    {.rule = "MR-006", mr_006},
    {.rule = "MR-011", mr_011},
    {.rule = "MR-012", mr_012},
    {.rule = "MR-013", mr_013},
    {.rule = "CQ-004", cq_004},
    {.rule = "CQ-005", cq_005},
    {.rule = "CQ-007", cq_007},
    {.rule = "CQ-008", cq_008},
    {.rule = "CQ-010", cq_010},
    {.rule = "CQ-013", cq_013},
    {.rule = "EXIT-004", exit_004, .more = "EXIT-005 EXIT-008 EXIT-011", .needs_exit = true},
    {.rule = "EXIT-005", exit_005, .more = "EXIT-011", .needs_exit = true},
    {.rule = "EXIT-006", exit_006, .more = "EXIT-011", .needs_exit = true},
    {.rule = "EXIT-007", exit_007, .more = "EXIT-008 EXIT-011", .needs_exit = true},
    {.rule = "EXIT-008", exit_008, .more = "EXIT-011", .needs_exit = true},
    {.rule = "EXIT-009", exit_009, .more = "EXIT-008 EXIT-011", .needs_exit = true},
    {.rule = "EXIT-010", exit_010, .more = "EXIT-008 EXIT-011", .needs_exit = true},
    {.rule = "EXIT-011", exit_011, .needs_exit = true},
    {.rule = "EXIT-012", exit_012, .needs_exit = true},
    {0},
};
