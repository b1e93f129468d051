/* Posts requests between two connected queue pairs of one process, one after the other, and prints
   the status of each completion. After a failed request it connects the queue pairs again.

   memory [ex] OPERATION...

   ex: post by ibv_wr_*. An operation is KIND[:BYTES[:AT]]; AT is the offset in the region. Kinds:
     write, send, read, add   one request; `send` posts a receive first
     srq_send                 as send, with the receive in a shared receive queue
     inline, quiet            a write: inline, unsignalled
     two                      a write of two SGEs of BYTES each
     many                     a write that names more SGEs than there are; not with ex
     list                     three writes in one post
     other                    a write from another region, the third
     where                    no request; prints the address of the first region
   The first region is the source of requests, the second is their target. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

enum { kSource, kTarget, kOther, kRegions, kBytes = 2 << 20 };

static struct ibv_context* context;
static struct ibv_cq* cqs[2];
static struct ibv_qp *from, *to, *to_srq;
static struct ibv_srq* srq;
static struct ibv_mr* regions[kRegions];
static char memory[kRegions][kBytes];  /* an operation has up to 1 MiB twice */
static int uses_ex;

static struct ibv_qp* make_qp(struct ibv_pd* pd, struct ibv_cq* cq, struct ibv_srq* with) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = cq, .recv_cq = cq, .srq = with, .qp_type = IBV_QPT_RC, .sq_sig_all = 0, .pd = pd};
  init.cap.max_send_wr = init.cap.max_recv_wr = 8;
  init.cap.max_send_sge = init.cap.max_recv_sge = 2;
  init.cap.max_inline_data = 64;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (uses_ex) {
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  }
  struct ibv_qp* qp = ibv_create_qp_ex(context, &init);
  CHECK(qp);
  return qp;
}

static void connect_qp(struct ibv_qp* qp, const struct ibv_qp* peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
  CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12};
  attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.hop_limit = 1;
  CHECK(!ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid));
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
                              .rnr_retry = 7, .max_rd_atomic = 1};
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Takes one completion. Returns its status. */
static enum ibv_wc_status take(struct ibv_cq* cq, const char* what) {
  struct ibv_wc wc;
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  CHECK(got == 1);
  printf("%s %s\n", what, ibv_wc_status_str(wc.status));
  return wc.status;
}

static void drain(struct ibv_cq* cq) {
  struct ibv_wc wc;
  while (ibv_poll_cq(cq, 1, &wc) == 1) {
  }
}

static void post_ex(const struct ibv_send_wr* list) {
  struct ibv_qp_ex* x = ibv_qp_to_qp_ex(from);
  CHECK(x);
  ibv_wr_start(x);
  for (const struct ibv_send_wr* wr = list; wr; wr = wr->next) {
    x->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
    if (wr->opcode == IBV_WR_SEND) ibv_wr_send(x);
    if (wr->opcode == IBV_WR_RDMA_WRITE)
      ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
    if (wr->opcode == IBV_WR_RDMA_READ)
      ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, 1);
    if (wr->send_flags & IBV_SEND_INLINE)
      ibv_wr_set_inline_data(x, (void*)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
    else if (wr->num_sge == 1)
      ibv_wr_set_sge(x, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
    else
      ibv_wr_set_sge_list(x, wr->num_sge, wr->sg_list);
  }
  errno = ibv_wr_complete(x);
  CHECK(!errno);
}

static void operate(const char* kind, unsigned bytes, unsigned at) {
  const int is_send = strstr(kind, "send") != NULL, is_list = !strcmp(kind, "list");
  struct ibv_qp* peer = strcmp(kind, "srq_send") ? to : to_srq;
  const int source = strcmp(kind, "other") ? kSource : kOther;
  struct ibv_sge sges[2] = {{(uintptr_t)memory[source] + at, bytes, regions[source]->lkey},
                            {(uintptr_t)memory[source] + at + bytes, bytes, regions[source]->lkey}};
  struct ibv_send_wr wrs[3], *bad;
  memset(wrs, 0, sizeof wrs);
  for (int i = 0; i < 3; i++) {
    wrs[i].next = is_list && i < 2 ? &wrs[i + 1] : NULL;
    wrs[i].sg_list = sges;
    wrs[i].num_sge = strcmp(kind, "two") ? 1 : 2;
    wrs[i].opcode = is_send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    wrs[i].send_flags = IBV_SEND_SIGNALED;
    wrs[i].wr.rdma.remote_addr = (uintptr_t)memory[kTarget];
    wrs[i].wr.rdma.rkey = regions[kTarget]->rkey;
  }
  if (!strcmp(kind, "many")) wrs->num_sge = 1 << 24;
  if (!strcmp(kind, "inline")) wrs->send_flags |= IBV_SEND_INLINE;
  if (!strcmp(kind, "quiet")) wrs->send_flags = 0;
  if (!strcmp(kind, "read")) wrs->opcode = IBV_WR_RDMA_READ;
  if (!strcmp(kind, "add")) {
    wrs->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wrs->wr.atomic.remote_addr = (uintptr_t)memory[kTarget];
    wrs->wr.atomic.rkey = regions[kTarget]->rkey;
    wrs->wr.atomic.compare_add = 1;
  }
  connect_qp(from, peer);
  connect_qp(peer, from);
  drain(cqs[0]);
  drain(cqs[1]);
  if (is_send) {
    struct ibv_sge sge = {(uintptr_t)memory[kTarget], bytes, regions[kTarget]->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    CHECK(!(peer == to ? ibv_post_recv(peer, &receive, &bad_receive)
                       : ibv_post_srq_recv(srq, &receive, &bad_receive)));
  }
  memset(memory[kTarget], 0, bytes);
  memset(memory[source] + at, 'x', 2 * bytes);
  if (uses_ex) {
    post_ex(wrs);
  } else {
    const struct ibv_send_wr before[3] = {wrs[0], wrs[1], wrs[2]};
    const int error = ibv_post_send(from, wrs, &bad);
    CHECK(!memcmp(before, wrs, sizeof wrs));
    if (error && bad != wrs) puts("another request is named");
    if (error && wrs->num_sge > 2) {
      printf("%s refused\n", kind);
      return;
    }
    errno = error;
    CHECK(!error);
  }
  const enum ibv_wc_status status = take(cqs[0], kind);
  if (is_list) take(cqs[0], kind), take(cqs[0], kind);
  /* The receive of a send that failed locally is not used. */
  if (is_send && status != IBV_WC_LOC_PROT_ERR) take(cqs[1], "recv");
  if (wrs->opcode != IBV_WR_RDMA_WRITE || is_list) return;
  /* A failed write leaves its target as it was. */
  CHECK((status == IBV_WC_SUCCESS) == (memory[kTarget][0] == 'x'));
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  uses_ex = argc > 1 && !strcmp(argv[1], "ex");
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0]);
  CHECK(context = ibv_open_device(list[0]));
  struct ibv_pd* pd = ibv_alloc_pd(context);
  CHECK(pd);
  for (int i = 0; i < kRegions; i++) {
    regions[i] = ibv_reg_mr(pd, memory[i], kBytes,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(regions[i]);
  }
  for (int i = 0; i < 2; i++) CHECK(cqs[i] = ibv_create_cq(context, 64, NULL, NULL, 0));
  struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 1}};
  CHECK(srq = ibv_create_srq(pd, &srq_init));
  from = make_qp(pd, cqs[0], NULL);
  to = make_qp(pd, cqs[1], NULL);
  to_srq = make_qp(pd, cqs[1], srq);
  for (int i = 1 + uses_ex; i < argc; i++) {
    char kind[16] = "";
    unsigned bytes = 64, at = 0;
    CHECK(sscanf(argv[i], "%15[a-z_]:%u:%u", kind, &bytes, &at) >= 1);
    if (strcmp(kind, "where"))
      operate(kind, bytes, at);
    else
      printf("where %p\n", (void*)memory[kSource]);
  }
  CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_qp(to_srq));
  CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cqs[0]) && !ibv_destroy_cq(cqs[1]));
  for (int i = 0; i < kRegions; i++) CHECK(!ibv_dereg_mr(regions[i]));
  CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
  ibv_free_device_list(list);
  puts("done");
  return 0;
}
