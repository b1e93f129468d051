/* Connects two ids of one process, sends COUNT messages from the active to the passive side and
   disconnects. Prints each event, completion and asynchronous event.

   connects ADDRESS COUNT LOST [cq_ex]

   LOST completions of the passive side are not expected. With cq_ex the program polls completions
   by ibv_start_poll. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

enum { kPassive, kActive, kSides };
static const char* const kNames[] = {"passive", "active"};

static struct rdma_event_channel* channels[kSides];
static struct rdma_cm_id *listener, *ids[kSides];
static struct ibv_cq* cqs[kSides];
static struct ibv_mr* mrs[kSides];
static char memory[64];
static int count, lost, uses_cq_ex, is_done[kSides], completed[kSides];

static struct ibv_cq* make_cq(struct ibv_context* context) {
  if (!uses_cq_ex) return ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_cq_init_attr_ex attr = {
      .cqe = 16, .wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN};
  struct ibv_cq_ex* cq = ibv_create_cq_ex(context, &attr);
  return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void make_qp(int side) {
  struct rdma_cm_id* id = ids[side];
  struct ibv_pd* pd = ibv_alloc_pd(id->verbs);
  CHECK(pd);
  CHECK(mrs[side] = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  CHECK(cqs[side] = make_cq(id->verbs));
  struct ibv_qp_init_attr init = {
      .send_cq = cqs[side], .recv_cq = cqs[side], .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  init.cap.max_send_wr = init.cap.max_recv_wr = 8;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  CHECK(!rdma_create_qp(id, pd, &init));
}

static void post(int side) {
  struct ibv_sge sge = {(uintptr_t)memory, 8, mrs[side]->lkey};
  struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  int error = side == kPassive ? ibv_post_recv(ids[side]->qp, &receive, &bad_receive)
                               : ibv_post_send(ids[side]->qp, &send, &bad_send);
  if (error) printf("%s post %s\n", kNames[side], strerrorname_np(error));
}

static void poll_completions(int side) {
  if (!cqs[side]) return;
  int found;
  do {
    found = 0;
    struct ibv_wc wc = {0};
    if (uses_cq_ex) {
      struct ibv_poll_cq_attr attr = {0};
      struct ibv_cq_ex* cq = (struct ibv_cq_ex*)cqs[side];
      for (int error = ibv_start_poll(cq, &attr); !error; error = ibv_next_poll(cq)) {
        printf("%s wc %s\n", kNames[side], ibv_wc_status_str(cq->status));
        completed[side]++;
        found++;
      }
      if (found) ibv_end_poll(cq);
    } else if (ibv_poll_cq(cqs[side], 1, &wc) == 1) {
      printf("%s wc %s\n", kNames[side], ibv_wc_status_str(wc.status));
      completed[side]++;
      found = 1;
    }
  } while (found);
}

static void connect_active(void) {
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  make_qp(kActive);
  CHECK(!rdma_connect(ids[kActive], &parameters));
}

static void handle(int side, struct rdma_cm_event* event) {
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      CHECK(!rdma_resolve_route(event->id, 1000));
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return connect_active();
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      ids[kPassive] = event->id;
      make_qp(kPassive);
      for (int i = 0; i < count; i++) post(kPassive);
      CHECK(!rdma_accept(event->id, &parameters));
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      for (int i = 0; side == kActive && i < count; i++) post(kActive);
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    case RDMA_CM_EVENT_DISCONNECTED:
      if (side == kPassive) rdma_disconnect(ids[side]);
      break;
    default:
      break; /* The connection has failed. */
  }
  is_done[side] = 1;
}

static void destroy_id(int side) {
  if (!ids[side]) return;
  if (ids[side]->qp) rdma_destroy_qp(ids[side]);
  CHECK(!rdma_destroy_id(ids[side]));
  ids[side] = NULL;
}

static void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static void take_event(int side) {
  struct rdma_cm_event* event;
  set_nonblocking(channels[side]->fd);
  if (rdma_get_cm_event(channels[side], &event)) {
    CHECK(errno == EAGAIN);
    return;
  }
  printf("%s %s %d %.*s\n", kNames[side], rdma_event_str(event->event), event->status,
         event->param.conn.private_data ? event->param.conn.private_data_len : 0,
         event->param.conn.private_data ? (const char*)event->param.conn.private_data : "");
  handle(side, event);
  int has_failed = is_done[side] && event->event != RDMA_CM_EVENT_DISCONNECTED;
  rdma_ack_cm_event(event);
  if (has_failed) destroy_id(side);
}

static void take_async(void) {
  struct ibv_async_event event;
  set_nonblocking(ids[kActive]->verbs->async_fd);
  if (ibv_get_async_event(ids[kActive]->verbs, &event)) {
    CHECK(errno == EAGAIN);
    return;
  }
  printf("async %s\n", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  count = atoi(argv[2]);
  lost = atoi(argv[3]);
  uses_cq_ex = argc > 4;
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct addrinfo* address;
  CHECK(!getaddrinfo(argv[1], "7471", NULL, &address));
  for (int side = 0; side < kSides; side++) CHECK(channels[side] = rdma_create_event_channel());
  CHECK(!rdma_create_id(channels[kPassive], &listener, NULL, RDMA_PS_TCP));
  CHECK(!rdma_bind_addr(listener, address->ai_addr) && !rdma_listen(listener, 1));
  CHECK(!rdma_create_id(channels[kActive], &ids[kActive], NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(ids[kActive], NULL, address->ai_addr, 1000));
  int is_disconnecting = 0;
  while (!is_done[kActive] || (ids[kPassive] && !is_done[kPassive])) {
    struct pollfd watched[3] = {
        {channels[0]->fd, POLLIN, 0}, {channels[1]->fd, POLLIN, 0}, {-1, POLLIN, 0}};
    if (ids[kActive] && ids[kActive]->verbs) watched[2].fd = ids[kActive]->verbs->async_fd;
    CHECK(poll(watched, 3, 5) >= 0);
    for (int side = 0; side < kSides; side++) poll_completions(side);
    if (watched[2].revents) take_async();
    if (watched[0].revents) take_event(0);
    if (watched[1].revents) take_event(1);
    if (!is_disconnecting && completed[kActive] >= count && completed[kPassive] >= count - lost &&
        completed[kActive] > 0) {
      is_disconnecting = 1;
      CHECK(!rdma_disconnect(ids[kActive]));
    }
  }
  for (int side = 0; side < kSides; side++) {
    destroy_id(side);
    if (cqs[side]) CHECK(!ibv_destroy_cq(cqs[side]));
  }
  CHECK(!rdma_destroy_id(listener));
  for (int side = 0; side < kSides; side++) rdma_destroy_event_channel(channels[side]);
  puts("done");
  return 0;
}
