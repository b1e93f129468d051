/* Threads that post to one QP and one SRQ and poll one CQ without locks of their own, which is
 * legal (ibv_post_send(3): verbs are thread-safe). Another thread waits for completions by events.
 * The payloads are small, inline and large. The program closes everything and checks the received
 * data. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "need.h"

enum { kThreads = 2, kRounds = 300, kSmall = 64, kLarge = 8192, kDepth = 64 };

static struct ibv_qp* qp;
static struct ibv_srq* srq;
static struct ibv_mr* mr;
static struct ibv_comp_channel* channel;
static char* memory;       /* by thread: its sent and received bytes */
static int sent, received; /* under `counting` */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static char* slot(uint64_t thread, int receives) {
  return memory + (thread * 2 + (uint64_t)receives) * kLarge;
}

static void post_receive(uint64_t thread) {
  struct ibv_sge sge = {(uintptr_t)slot(thread, 1), kLarge, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = thread, .sg_list = &sge, .num_sge = 1}, *bad;
  NEED(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

static void take(void) {
  struct ibv_wc wc[4];
  const int count = ibv_poll_cq(qp->send_cq, 4, wc);
  NEED(count >= 0);
  for (int i = 0; i < count; i++) {
    NEED(wc[i].status == IBV_WC_SUCCESS);
    const int receives = (wc[i].opcode & IBV_WC_RECV) != 0;
    /* This thread owns the buffer now, whichever thread posted it. */
    if (receives) memset(slot(wc[i].wr_id, 1), 0, wc[i].byte_len), post_receive(wc[i].wr_id);
    pthread_mutex_lock(&counting);
    *(receives ? &received : &sent) += 1;
    pthread_mutex_unlock(&counting);
  }
}

static int done(int total) {
  pthread_mutex_lock(&counting);
  const int is_done = sent == total && received == total;
  pthread_mutex_unlock(&counting);
  return is_done;
}

static void* post(void* argument) {
  const uint64_t thread = (uintptr_t)argument;
  for (int i = 0; i < kRounds; i++) {
    const uint32_t length = i % 16 == 0 ? kLarge : kSmall;
    struct ibv_sge sge = {(uintptr_t)slot(thread, 0), length, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = thread, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
                       *bad;
    wr.send_flags = IBV_SEND_SIGNALED | (i % 4 == 1 ? IBV_SEND_INLINE : 0);
    while (ibv_post_send(qp, &wr, &bad)) take();
    take();
  }
  return NULL;
}

static void* wait_for_events(void* argument) {
  (void)argument;
  struct ibv_cq* cq;
  void* context;
  NEED(ibv_get_cq_event(channel, &cq, &context) == 0);
  ibv_ack_cq_events(cq, 1);
  take();
  return NULL;
}

static void connect_to_itself(struct ibv_context* context) {
  union ibv_gid gid;
  NEED(ibv_query_gid(context, 1, 1, &gid) == 0);
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
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
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  NEED(list && list[0]);
  struct ibv_context* context = ibv_open_device(list[0]);
  NEED(context);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  const size_t bytes = (size_t)kThreads * 2 * kLarge;
  memory = malloc(bytes);
  NEED(pd && memory);
  memset(memory, 'm', bytes);
  NEED(mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE));
  NEED(channel = ibv_create_comp_channel(context));
  struct ibv_cq* cq = ibv_create_cq(context, 4 * kDepth, NULL, channel, 0);
  NEED(cq && ibv_req_notify_cq(cq, 0) == 0);
  struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = kDepth, .max_sge = 1}};
  NEED(srq = ibv_create_srq(pd, &srq_attr));
  struct ibv_qp_init_attr attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .srq = srq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = kSmall}};
  NEED(qp = ibv_create_qp(pd, &attr));
  connect_to_itself(context);
  for (uint64_t i = 0; i < kThreads; i++) post_receive(i);

  pthread_t posting[kThreads], waiting;
  pthread_create(&waiting, NULL, wait_for_events, NULL);
  for (uintptr_t i = 0; i < kThreads; i++) pthread_create(&posting[i], NULL, post, (void*)i);
  for (int i = 0; i < kThreads; i++) pthread_join(posting[i], NULL);
  while (!done(kThreads * kRounds)) take();
  pthread_join(waiting, NULL);

  NEED(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
  NEED(ibv_destroy_comp_channel(channel) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(context) == 0);
  ibv_free_device_list(list);
  free(memory);
  printf("done: %d sent, %d received\n", sent, received);
  return 0;
}
