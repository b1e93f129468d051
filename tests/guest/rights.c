/* A region becomes read-only after its registration. An RDMA WRITE to it fails and does not
 * change its bytes. A READ of it succeeds. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "need.h"

enum { kBytes = 8192 };

static struct ibv_pd* pd;
static struct ibv_cq* cq;

static struct ibv_qp* connected(struct ibv_context* context) {
  struct ibv_qp_init_attr attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  NEED(qp);
  union ibv_gid gid;
  NEED(ibv_query_gid(context, 1, 1, &gid) == 0);
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  NEED(ibv_modify_qp(qp, &init,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  struct ibv_qp_attr ready = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = qp->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 1,
      .ah_attr = {
          .is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}}};
  NEED(ibv_modify_qp(qp, &ready,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  struct ibv_qp_attr send = {
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  NEED(ibv_modify_qp(qp, &send,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  return qp;
}

static enum ibv_wc_status move(struct ibv_qp* qp, enum ibv_wr_opcode opcode, struct ibv_mr* local,
                               struct ibv_mr* remote, uint32_t bytes) {
  struct ibv_sge sge = {(uintptr_t)local->addr, bytes, local->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge,
                           .num_sge = 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr.rdma = {(uintptr_t)remote->addr, remote->rkey}},
                     *bad;
  NEED(ibv_post_send(qp, &wr, &bad) == 0);
  struct ibv_wc wc;
  int count;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  NEED(count == 1);
  return wc.status;
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  NEED(context && (pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
  char* memory = mmap(NULL, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(memory != MAP_FAILED);
  memset(memory, 'a', kBytes);
  memset(memory + kBytes, 'b', kBytes);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  struct ibv_mr* from = ibv_reg_mr(pd, memory, kBytes, access);
  struct ibv_mr* to = ibv_reg_mr(pd, memory + kBytes, kBytes, access);
  NEED(from && to);
  for (uint32_t bytes = 8; bytes <= kBytes; bytes *= 1024) {
    NEED(mprotect(memory + kBytes, kBytes, PROT_READ) == 0);
    const int refused = move(connected(context), IBV_WR_RDMA_WRITE, from, to, bytes) != 0;
    const int stayed = memory[kBytes] == 'b';
    const int read = move(connected(context), IBV_WR_RDMA_READ, from, to, bytes) == 0;
    NEED(mprotect(memory + kBytes, kBytes, PROT_READ | PROT_WRITE) == 0);
    printf("%u bytes: refused %d, stayed %d, read %d, came %d\n", bytes, refused, stayed, read,
           memory[0] == 'b' && memory[bytes - 1] == 'b');
    memset(memory, 'a', kBytes);
  }
  return 0;
}
