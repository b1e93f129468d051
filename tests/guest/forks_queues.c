/* A parent destroys queues that its forked child keeps, and creates others of the same sizes. What
 * the child does with its queues must not reach the others. The errors are those of rdma_rxe.
 * usage: forks_queues [interrupted] (interrupted: signals stop the child anywhere in its calls) */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

enum { kDepth = 16, kOwn = 0x600d, kStale = 0xbad, kRounds = 60 };

struct queues {
  struct ibv_comp_channel* channel;
  struct ibv_cq *cq, *polled_cq;
  struct ibv_srq *srq, *resized_srq;
  struct ibv_qp *qp, *extended_qp;
};

static struct ibv_context* context;
static struct ibv_pd* pd;

static struct ibv_cq* create_cq(struct queues* q) {
  struct ibv_cq* const cq = ibv_create_cq(context, kDepth, NULL, q->channel, 0);
  NEED(cq != NULL);
  return cq;
}

static struct ibv_srq* create_srq(void) {
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = kDepth, .max_sge = 1}};
  struct ibv_srq* const srq = ibv_create_srq(pd, &attr);
  NEED(srq != NULL);
  return srq;
}

/* Connects the queue pair with itself. */
static void connect_qp(struct ibv_qp* qp) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  NEED(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  NEED(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
  NEED(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  NEED(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_qp* create_qp(struct ibv_cq* cq) {
  struct ibv_qp_init_attr_ex attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_SEND};
  struct ibv_qp* const qp = ibv_create_qp_ex(context, &attr);
  NEED(qp != NULL);
  connect_qp(qp);
  return qp;
}

static void create(struct queues* q) {
  q->channel = ibv_create_comp_channel(context);
  NEED(q->channel != NULL);
  q->cq = create_cq(q);
  q->polled_cq = create_cq(q);
  q->srq = create_srq();
  q->resized_srq = create_srq();
  q->qp = create_qp(q->cq);
  q->extended_qp = create_qp(q->cq);
}

static void destroy(struct queues* q) {
  struct ibv_srq_attr larger = {.max_wr = 4 * kDepth};
  NEED(ibv_modify_srq(q->resized_srq, &larger, IBV_SRQ_MAX_WR) == 0);
  NEED(ibv_destroy_qp(q->qp) == 0 && ibv_destroy_qp(q->extended_qp) == 0);
  NEED(ibv_destroy_srq(q->srq) == 0);
  NEED(ibv_destroy_cq(q->cq) == 0 && ibv_destroy_cq(q->polled_cq) == 0);
  NEED(ibv_destroy_comp_channel(q->channel) == 0);
}

static int post_recv(struct ibv_qp* qp, uint64_t wr_id) {
  struct ibv_recv_wr wr = {.wr_id = wr_id}, *bad;
  return ibv_post_recv(qp, &wr, &bad);
}

static int post_send(struct ibv_qp* qp, uint64_t wr_id) {
  struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_SEND}, *bad;
  return ibv_post_send(qp, &wr, &bad);
}

static int post_extended(struct ibv_qp* qp, uint64_t wr_id) {
  struct ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(extended);
  extended->wr_id = wr_id;
  ibv_wr_send(extended);
  return ibv_wr_complete(extended);
}

static int post_srq(struct ibv_srq* srq) {
  struct ibv_recv_wr wr = {.wr_id = kStale}, *bad;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

/* Returns how many receives a queue takes until it is full. */
static int room(struct ibv_srq* srq) {
  int posted = 0;
  while (post_srq(srq) == 0) posted++;
  return posted;
}

static void child_posts(struct queues* q) {
  NEED(post_recv(q->qp, kStale) == 0);
  NEED(post_send(q->qp, kStale) == EINVAL);
  NEED(post_extended(q->extended_qp, kStale) == EINVAL);
  NEED(post_srq(q->srq) == 0);
  NEED(post_srq(q->resized_srq) == 0);
  NEED(ibv_req_notify_cq(q->polled_cq, 0) == ENOENT);
}

static void child_polls(struct queues* q) {
  struct ibv_wc wc;
  NEED(ibv_poll_cq(q->cq, 1, &wc) == 0);
  NEED(ibv_poll_cq(q->polled_cq, 1, &wc) == 0);
}

static void fail(struct ibv_qp* qp) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
  NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

/* The queue pair has failed. What it flushes must be `count` requests, and all the parent's. */
static void expect_flushed(struct ibv_qp* qp, int count) {
  struct ibv_wc wc[kDepth];
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr ignored;
  int polled = 0;
  while (polled < count) {
    const int more = ibv_poll_cq(qp->recv_cq, kDepth, wc + polled);
    NEED(more >= 0);
    polled += more;
  }
  NEED(ibv_query_qp(qp, &attr, IBV_QP_STATE, &ignored) == 0);
  NEED(ibv_poll_cq(qp->recv_cq, kDepth - polled, wc + polled) == 0);
  for (int i = 0; i < polled; i++) {
    if (wc[i].wr_id != kOwn) printf("flushed %#lx\n", (unsigned long)wc[i].wr_id);
    NEED(wc[i].wr_id == kOwn);
  }
}

static void tell(int to) { NEED(write(to, "", 1) == 1); }
static void await(int from) {
  char token;
  NEED(read(from, &token, 1) == 1);
}

/* Stops the child until the parent tells it to continue. */
static int stopped_fd, continue_fd;
static void stop(int signal) {
  (void)signal;
  const int before = errno;
  tell(stopped_fd);
  await(continue_fd);
  errno = before;
}

/* Uses the queues until the other end of the pipe is closed. */
static void use_until_closed(struct queues* q, int fd, int round) {
  struct ibv_wc wc;
  struct pollfd closed = {.fd = fd};
  const struct itimerval timer = {.it_value.tv_usec = 300 + 37 * round};
  signal(SIGALRM, stop);
  setitimer(ITIMER_REAL, &timer, NULL);
  while (poll(&closed, 1, 0) == 0) {
    for (int i = 0; i < 20; i++) {
      (void)post_recv(q->qp, kStale);
      (void)post_send(q->qp, kStale);
      (void)post_extended(q->extended_qp, kStale);
      (void)post_srq(q->srq);
      (void)ibv_req_notify_cq(q->polled_cq, 0);
      (void)ibv_poll_cq(q->polled_cq, 1, &wc);
    }
  }
}

static void replace_while_a_child_is_interrupted(int round, int empty) {
  struct queues q;
  create(&q);
  int pipe_ends[2], stopped[2], resumes[2];
  NEED(pipe(pipe_ends) == 0 && pipe(stopped) == 0 && pipe(resumes) == 0);
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    close(pipe_ends[1]);
    close(resumes[1]);
    stopped_fd = stopped[1];
    continue_fd = resumes[0];
    use_until_closed(&q, pipe_ends[0], round);
    _exit(0);
  }
  close(pipe_ends[0]);
  close(stopped[1]);
  close(resumes[0]);
  await(stopped[0]);
  destroy(&q);
  create(&q);
  NEED(room(q.srq) == empty);
  NEED(post_recv(q.qp, kOwn) == 0);
  close(pipe_ends[1]);
  tell(resumes[1]);
  int status = -1;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  fail(q.qp);
  expect_flushed(q.qp, 1);
  struct pollfd event = {.fd = q.channel->fd, .events = POLLIN};
  NEED(poll(&event, 1, 0) == 0);
  struct ibv_recv_wr* bad;
  NEED(ibv_post_srq_recv(q.srq, &(struct ibv_recv_wr){.wr_id = kOwn}, &bad) == ENOMEM);
  close(stopped[0]);
  close(resumes[1]);
  destroy(&q);
}

static void interrupt_children(void) {
  struct ibv_srq* const srq = create_srq();
  const int empty = room(srq);
  NEED(ibv_destroy_srq(srq) == 0);
  for (int round = 0; round < kRounds; round++) replace_while_a_child_is_interrupted(round, empty);
}

int main(int count, char** arguments) {
  (void)arguments;
  struct ibv_device** list = ibv_get_device_list(NULL);
  context = ibv_open_device(list[0]);
  NEED(context != NULL);
  pd = ibv_alloc_pd(context);
  if (count > 1) {
    interrupt_children();
    return 0;
  }
  struct queues old, new;
  create(&old);
  int to_child[2], to_parent[2];
  NEED(pipe(to_child) == 0 && pipe(to_parent) == 0);
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    close(to_child[1]);
    /* While nothing is destroyed, the queues are as the parent's. */
    NEED(post_recv(old.qp, kOwn) == 0);
    NEED(ibv_req_notify_cq(old.polled_cq, 0) == 0);
    tell(to_parent[1]);
    await(to_child[0]);
    child_posts(&old);
    tell(to_parent[1]);
    await(to_child[0]);
    child_polls(&old);
    _exit(0);
  }
  close(to_parent[1]);
  await(to_parent[0]);
  fail(old.qp);
  expect_flushed(old.qp, 1);
  destroy(&old);
  create(&new);
  const int empty = room(create_srq());
  tell(to_child[1]);
  await(to_parent[0]);
  NEED(room(new.srq) == empty);
  NEED(room(new.resized_srq) == empty);
  /* The child polls while the new queue has completions. */
  NEED(post_recv(new.qp, kOwn) == 0 && post_recv(new.qp, kOwn) == 0);
  fail(new.qp);
  tell(to_child[1]);
  int status = -1;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  expect_flushed(new.qp, 2);
  fail(new.extended_qp);
  NEED(post_send(new.extended_qp, kOwn) == 0);
  expect_flushed(new.extended_qp, 1);
  return 0;
}
