/* Sends COUNT messages from a queue pair to itself and takes the completions as an event loop does:
   it sleeps on the completion channel, arms the queue and polls until it is empty. Prints each
   completion in the order of its arrival.

   waits COUNT */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

static struct ibv_qp* make_qp(struct ibv_context* context, struct ibv_pd* pd, struct ibv_cq* cq) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  init.cap.max_send_wr = init.cap.max_recv_wr = 16;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
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

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  static char memory[64];
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0]);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  CHECK(pd && channel);
  struct ibv_cq* cq = ibv_create_cq(context, 64, NULL, channel, 0);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  CHECK(cq && mr && !ibv_req_notify_cq(cq, 0));
  struct ibv_qp* qp = make_qp(context, pd, cq);
  for (int i = 0; i < count; i++) {
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad_receive;
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
  }
  for (int i = 0; i < count; i++) {
    struct ibv_sge sge = {(uintptr_t)memory + 32, 8, mr->lkey};
    struct ibv_send_wr send = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr* bad_send;
    CHECK(!ibv_post_send(qp, &send, &bad_send));
  }
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  for (int seen = 0, events = 0; seen < 2 * count;) {
    struct pollfd readable = {channel->fd, POLLIN, 0};
    CHECK(poll(&readable, 1, -1) == 1);
    struct ibv_cq* of;
    void* cookie;
    if (ibv_get_cq_event(channel, &of, &cookie)) {
      CHECK(errno == EAGAIN);
      continue;
    }
    ibv_ack_cq_events(of, 1);
    events++;
    CHECK(!ibv_req_notify_cq(of, 0));
    struct ibv_wc wc;
    while (ibv_poll_cq(of, 1, &wc) == 1) {
      printf("%s %d %s\n", wc.opcode & IBV_WC_RECV ? "recv" : "send", (int)wc.wr_id,
             ibv_wc_status_str(wc.status));
      seen++;
    }
  }
  CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) &&
        !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
  ibv_free_device_list(list);
  puts("done");
  return 0;
}
