/* Writes COUNT times from a queue pair to itself, while two threads poll its completion queue.
   Prints how many completions a thread got after a later one.

   pollers COUNT */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

static struct ibv_cq* cq;
static int count;
static atomic_int seen, disordered;

static struct ibv_qp* make_qp(struct ibv_context* context, struct ibv_pd* pd, struct ibv_cq* cq) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  init.cap.max_send_wr = init.cap.max_recv_wr = 256;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
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
  return qp;
}

static void* poll_all(void* unused) {
  struct ibv_wc wc;
  long last = -1;
  while (seen < count) {
    const int got = ibv_poll_cq(cq, 1, &wc);
    CHECK(got >= 0);
    if (got == 0) {
      sched_yield();
      continue;
    }
    CHECK(wc.status == IBV_WC_SUCCESS);
    if ((long)wc.wr_id < last) disordered++;
    last = wc.wr_id;
    seen++;
  }
  return unused;
}

int main(int argc, char** argv) {
  count = argc > 1 ? atoi(argv[1]) : 1;
  CHECK(count <= 256);
  static char memory[64];
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0]);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  CHECK(pd && (cq = ibv_create_cq(context, 512, NULL, NULL, 0)));
  struct ibv_mr* mr =
      ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK(mr);
  struct ibv_qp* qp = make_qp(context, pd, cq);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, poll_all, NULL));
  for (int i = 0; i < count; i++) {
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr write = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = (uintptr_t)memory + 32;
    write.wr.rdma.rkey = mr->rkey;
    CHECK(!ibv_post_send(qp, &write, &bad));
  }
  for (int i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
  printf("%d completions, %d out of order\n", seen, disordered);
  CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) &&
        !ibv_close_device(context));
  ibv_free_device_list(list);
  return 0;
}
