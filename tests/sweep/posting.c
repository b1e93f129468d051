/* Posts from two lines: once, and 1,000 times in a loop. One RC queue pair is connected to itself.
 * `posting fork`: a child makes a call, too. Exit status: 0, or 1 after a failure. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOPS = 1000, DEPTH = 16, PORT = 1, GID = 1 };

static struct ibv_context* device;
static struct ibv_qp* qp;
static struct ibv_cq* cq;
static struct ibv_mr* mr;
static uint64_t bytes[2];

static int failed(const char* what) {
  fprintf(stderr, "posting: %s failed\n", what);
  return -1;
}

static int connect_to_itself(void) {
  union ibv_gid gid;
  if (ibv_query_gid(device, PORT, GID, &gid) != 0) return failed("ibv_query_gid");
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  if (ibv_modify_qp(qp, &init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    return failed("INIT");
  }
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qp->qp_num,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12,
                            .ah_attr = {.is_global = 1,
                                        .port_num = PORT,
                                        .grh = {.dgid = gid, .sgid_index = GID, .hop_limit = 1}}};
  if (ibv_modify_qp(qp, &rtr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    return failed("RTR");
  }
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  if (ibv_modify_qp(qp, &rts,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    return failed("RTS");
  }
  return 0;
}

static int await_completion(void) {
  struct ibv_wc wc;
  int count;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  return count == 1 && wc.status == IBV_WC_SUCCESS ? 0 : failed("a write");
}

static int post_in_two_lines(void) {
  struct ibv_sge sge = {(uintptr_t)bytes, sizeof bytes[0], mr->lkey};
  struct ibv_send_wr write = {.sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED,
                              .wr.rdma = {(uintptr_t)&bytes[1], mr->rkey}};
  struct ibv_send_wr* bad;
  if (ibv_post_send(qp, &write, &bad) != 0 || await_completion() != 0) return -1;
  for (int i = 0; i < LOOPS; i++) {
    if (ibv_post_send(qp, &write, &bad) != 0 || await_completion() != 0) return -1;
  }
  return 0;
}

static int query_in_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    struct ibv_port_attr port;
    _exit(ibv_query_port(device, PORT, &port) == 0 ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : failed("the child");
}

int main(int argc, char** argv) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) return 1;
  device = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (device == NULL) return 1;
  int status = -1;
  struct ibv_pd* const pd = ibv_alloc_pd(device);
  cq = ibv_create_cq(device, DEPTH, NULL, NULL, 0);
  mr = pd == NULL
           ? NULL
           : ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (cq != NULL && mr != NULL) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq, .recv_cq = cq, .cap = {DEPTH, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    qp = ibv_create_qp(pd, &attributes);
    status = qp == NULL ? failed("ibv_create_qp") : connect_to_itself();
    if (status == 0) status = post_in_two_lines();
    if (status == 0 && argc > 1 && strcmp(argv[1], "fork") == 0) status = query_in_child();
  }
  if (qp != NULL) ibv_destroy_qp(qp);
  if (mr != NULL) ibv_dereg_mr(mr);
  if (cq != NULL) ibv_destroy_cq(cq);
  if (pd != NULL) ibv_dealloc_pd(pd);
  ibv_close_device(device);
  return status == 0 ? 0 : 1;
}
