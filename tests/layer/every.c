/* Makes events and completions again and again, so that each rule of a scenario can change one of
   them. Prints what the program sees.

   every events ADDRESS COUNT    COUNT connections: the active side's answer to rdma_connect
   every statuses ADDRESS COUNT  COUNT connections: a send's completion and its queue pair's state
   every removed ADDRESS COUNT   calls on an id that got DEVICE_REMOVAL instead of ESTABLISHED, and
                                 on an id after it
   every qp ADDRESS COUNT        an asynchronous event of a queue pair, until COUNT are changed ones
   every srq ADDRESS COUNT       the same of a shared receive queue
   every cq ADDRESS COUNT        the same of a completion queue, which overruns
   every device ADDRESS COUNT    the same of the device, whose addresses somebody else changes

   The kinds with asynchronous events do not print the natural ones (SQ_DRAINED,
   SRQ_LIMIT_REACHED, GID_CHANGE). */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

enum { kLimit_s = 100, kDepth = 16 };

struct side {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_srq* srq;
  struct ibv_mr* mr;
};
static struct side active, passive;
static struct rdma_cm_id* listener;
static struct addrinfo* address;
static char memory[64];
static int uses_srq, cq_entries = kDepth;

static void make_qp(struct side* side) {
  CHECK(side->pd = ibv_alloc_pd(side->id->verbs));
  CHECK(side->mr = ibv_reg_mr(side->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  CHECK(side->cq = ibv_create_cq(side->id->verbs, cq_entries, NULL, NULL, 0));
  if (uses_srq && side == &passive) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = kDepth, .max_sge = 1}};
    CHECK(side->srq = ibv_create_srq(side->pd, &init));
  }
  struct ibv_qp_init_attr init = {.send_cq = side->cq,
                                  .recv_cq = side->cq,
                                  .srq = side->srq,
                                  .qp_type = IBV_QPT_RC,
                                  .sq_sig_all = 1,
                                  .cap = {kDepth, side->srq ? 0 : kDepth, 1, 1, 0}};
  CHECK(!rdma_create_qp(side->id, side->pd, &init));
}

static void post_receive(void) {
  struct ibv_sge sge = {(uintptr_t)memory, 8, passive.mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad;
  CHECK(!(passive.srq ? ibv_post_srq_recv(passive.srq, &receive, &bad)
                      : ibv_post_recv(passive.id->qp, &receive, &bad)));
}

static void post_send(void) {
  struct ibv_sge sge = {(uintptr_t)memory, 8, active.mr->lkey};
  struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  CHECK(!ibv_post_send(active.id->qp, &send, &bad));
}

static enum ibv_wc_status completed(struct side* side) {
  struct ibv_wc wc;
  int found;
  while ((found = ibv_poll_cq(side->cq, 1, &wc)) == 0) poll(NULL, 0, 1);
  CHECK(found == 1);
  return wc.status;
}

/* Takes the next event of the side. Accepts a connection request. */
static enum rdma_cm_event_type take_event(struct side* side, int* status) {
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  struct rdma_cm_event* event;
  CHECK(!rdma_get_cm_event(side->channel, &event));
  const enum rdma_cm_event_type type = event->event;
  if (status) *status = event->status;
  if (side == &passive && type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    side->id = event->id;
    make_qp(side);
    CHECK(!rdma_accept(side->id, &parameters));
  }
  CHECK(!rdma_ack_cm_event(event));
  return type;
}

/* Returns the event that answers rdma_connect. */
static enum rdma_cm_event_type connects(int* status) {
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  CHECK(!rdma_create_id(active.channel, &active.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(active.id, NULL, address->ai_addr, 5000));
  CHECK(take_event(&active, NULL) == RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(!rdma_resolve_route(active.id, 5000));
  CHECK(take_event(&active, NULL) == RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_qp(&active);
  CHECK(!rdma_connect(active.id, &parameters));
  CHECK(take_event(&passive, NULL) == RDMA_CM_EVENT_CONNECT_REQUEST);
  return take_event(&active, status);
}

static void destroy(struct side* side) {
  rdma_destroy_qp(side->id);
  CHECK(!rdma_destroy_id(side->id));
  if (side->srq) CHECK(!ibv_destroy_srq(side->srq));
  CHECK(!ibv_destroy_cq(side->cq));
  CHECK(!ibv_dereg_mr(side->mr));
  CHECK(!ibv_dealloc_pd(side->pd));
  side->srq = NULL;
}

/* The active id may have ended for the program, so it is destroyed without rdma_disconnect. The
   passive side then gets DISCONNECTED, or REJECTED if it has no ESTABLISHED yet. */
static void disconnects(void) {
  destroy(&active);
  while (take_event(&passive, NULL) == RDMA_CM_EVENT_ESTABLISHED) {
  }
  destroy(&passive);
}

static void print_state(void) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(!ibv_query_qp(active.id->qp, &attr, IBV_QP_STATE, &init));
  printf(" %s\n", attr.qp_state == IBV_QPS_ERR ? "ERR" : "not ERR");
}

static void set_state(enum ibv_qp_state state) {
  struct ibv_qp_attr attr = {.qp_state = state, .en_sqd_async_notify = 1};
  const int notify = state == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0;
  CHECK(!ibv_modify_qp(active.id->qp, &attr, IBV_QP_STATE | notify));
}

/* Returns whether an event was printed. */
static int take_async(struct ibv_context* context) {
  struct ibv_async_event event;
  CHECK(!ibv_get_async_event(context, &event));
  const int is_natural = event.event_type == IBV_EVENT_SQ_DRAINED ||
                         event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ||
                         event.event_type == IBV_EVENT_GID_CHANGE;
  if (!is_natural) puts(ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  return !is_natural;
}

static int is_readable(int descriptor, int wait_ms) {
  struct pollfd watched = {descriptor, POLLIN, 0};
  return poll(&watched, 1, wait_ms) == 1;
}

/* ---- kinds */

static void events(int count) {
  for (int i = 0; i < count; i++) {
    int status;
    const enum rdma_cm_event_type type = connects(&status);
    printf("%s %d\n", rdma_event_str(type), status);
    disconnects();
  }
}

static void statuses(int count) {
  for (int i = 0; i < count; i++) {
    CHECK(connects(NULL) == RDMA_CM_EVENT_ESTABLISHED);
    post_receive();
    post_send();
    printf("%s", ibv_wc_status_str(completed(&active)));
    print_state();
    disconnects();
  }
}

static void call(const char* name, int result) {
  printf("%s: %s\n", name, result ? strerrorname_np(errno) : "success");
}

static void removed(int count) {
  struct rdma_conn_param parameters = {.retry_count = 7};
  int on = 1;
  for (int i = 0; i < count; i++) {
    CHECK(connects(NULL) == RDMA_CM_EVENT_DEVICE_REMOVAL);
    call("rdma_bind_addr", rdma_bind_addr(active.id, address->ai_addr));
    call("rdma_resolve_addr", rdma_resolve_addr(active.id, NULL, address->ai_addr, 1));
    call("rdma_resolve_route", rdma_resolve_route(active.id, 1));
    call("rdma_connect", rdma_connect(active.id, &parameters));
    call("rdma_listen", rdma_listen(active.id, 1));
    call("rdma_accept", rdma_accept(active.id, &parameters));
    call("rdma_reject", rdma_reject(active.id, NULL, 0));
    call("rdma_disconnect", rdma_disconnect(active.id));
    call("rdma_set_option",
         rdma_set_option(active.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    disconnects();
    int status;
    printf("next connection: %s\n", rdma_event_str(connects(&status)));
    disconnects();
  }
}

static void qp_events(int count) {
  CHECK(connects(NULL) == RDMA_CM_EVENT_ESTABLISHED);
  while (count > 0) {
    set_state(IBV_QPS_SQD);
    count -= take_async(active.id->verbs);
    set_state(IBV_QPS_RTS);
  }
  /* rdma_rxe raises SQ_DRAINED more than once. */
  while (is_readable(active.id->verbs->async_fd, 0)) take_async(active.id->verbs);
  disconnects();
}

static void srq_events(int count) {
  uses_srq = 1;
  CHECK(connects(NULL) == RDMA_CM_EVENT_ESTABLISHED);
  while (count > 0) {
    struct ibv_srq_attr attr = {.srq_limit = 1};
    post_receive();
    CHECK(!ibv_modify_srq(passive.srq, &attr, IBV_SRQ_LIMIT));
    post_send();
    CHECK(completed(&active) == IBV_WC_SUCCESS && completed(&passive) == IBV_WC_SUCCESS);
    count -= take_async(passive.id->verbs);
  }
  disconnects();
}

static void cq_events(int count) {
  for (int i = 0; i < count; i++) {
    cq_entries = 1;
    CHECK(connects(NULL) == RDMA_CM_EVENT_ESTABLISHED);
    for (int sent = 0; sent < kDepth; sent++) {
      post_receive();
      if (sent < kDepth / 2) post_send();
    }
    take_async(active.id->verbs);
    disconnects();
  }
}

static void device_events(int count) {
  puts("ready");
  while (count > 0) count -= take_async(listener->verbs);
}

static const struct {
  const char* name;
  void (*function)(int count);
} kKinds[] = {{"events", events},       {"statuses", statuses}, {"removed", removed},
              {"qp", qp_events},        {"srq", srq_events},    {"cq", cq_events},
              {"device", device_events}};

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  alarm(kLimit_s);
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(!getaddrinfo(argv[2], "7472", NULL, &address));
  CHECK(active.channel = rdma_create_event_channel());
  CHECK(passive.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(passive.channel, &listener, NULL, RDMA_PS_TCP));
  CHECK(!rdma_bind_addr(listener, address->ai_addr) && !rdma_listen(listener, 4));
  for (unsigned i = 0; i < sizeof kKinds / sizeof kKinds[0]; i++) {
    if (!strcmp(argv[1], kKinds[i].name)) kKinds[i].function(atoi(argv[3]));
  }
  CHECK(!rdma_destroy_id(listener));
  rdma_destroy_event_channel(active.channel);
  rdma_destroy_event_channel(passive.channel);
  puts("done");
  return 0;
}
