/* Makes the mistake of a rule of docs/checks.md, or the same calls correctly.

   uses RULE break|keep ADDRESS    such as: uses CM-001 break 127.0.0.1
   uses list                       each rule, and the rules that its mistake breaks, too */
#include "uses.h"

#include <sys/syscall.h>

struct addrinfo* address;

/* ---- verbs */

struct ibv_context* open_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0]);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context);
  ibv_free_device_list(list);
  return context;
}

struct device make_device(void) {
  struct device device = {.context = open_device()};
  CHECK(device.pd = ibv_alloc_pd(device.context));
  CHECK(device.cq = ibv_create_cq(device.context, 16, NULL, NULL, 0));
  return device;
}

void destroy_device(struct device* device) {
  CHECK(!ibv_destroy_cq(device->cq));
  CHECK(!ibv_dealloc_pd(device->pd));
  CHECK(!ibv_close_device(device->context));
}

struct ibv_qp* make_qp(struct device* device) {
  struct ibv_qp_init_attr init = {
      .send_cq = device->cq, .recv_cq = device->cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(device->pd, &init);
  CHECK(qp);
  return qp;
}

/* ---- RDMA CM */

struct rdma_conn_param good_parameters(void) {
  return (struct rdma_conn_param){.retry_count = 7, .rnr_retry_count = 7};
}

struct rdma_cm_event* take(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  CHECK(!rdma_get_cm_event(channel, &event));
  if (event->event != type) fprintf(stderr, "got %s\n", rdma_event_str(event->event));
  CHECK(event->event == type);
  return event;
}

void take_and_ack(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  CHECK(!rdma_ack_cm_event(take(channel, type)));
}

struct side resolved_address(void) {
  struct side side;
  CHECK(side.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(side.id, NULL, address->ai_addr, 5000));
  take_and_ack(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  return side;
}

struct side resolved_route(void) {
  struct side side = resolved_address();
  CHECK(!rdma_resolve_route(side.id, 5000));
  take_and_ack(side.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return side;
}

void destroy_side(struct side* side) {
  if (side->id->qp) rdma_destroy_qp(side->id);
  CHECK(!rdma_destroy_id(side->id));
  rdma_destroy_event_channel(side->channel);
}

void make_cm_qp(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  CHECK(!rdma_create_qp(id, NULL, &init));
}

struct pair requested(const struct rdma_conn_param* parameters) {
  struct pair pair;
  CHECK(pair.passive.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(pair.passive.channel, &pair.listener, NULL, RDMA_PS_TCP));
  CHECK(!rdma_bind_addr(pair.listener, address->ai_addr) && !rdma_listen(pair.listener, 4));
  pair.active = resolved_route();
  make_cm_qp(pair.active.id);
  struct rdma_conn_param good = good_parameters();
  if (parameters) good = *parameters;
  CHECK(!rdma_connect(pair.active.id, &good));
  struct rdma_cm_event* event = take(pair.passive.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  pair.passive.id = event->id;
  CHECK(!rdma_ack_cm_event(event));
  return pair;
}

void accepts(struct pair* pair) {
  struct rdma_conn_param good = good_parameters();
  make_cm_qp(pair->passive.id);
  CHECK(!rdma_accept(pair->passive.id, &good));
  take_and_ack(pair->active.channel, RDMA_CM_EVENT_ESTABLISHED);
  take_and_ack(pair->passive.channel, RDMA_CM_EVENT_ESTABLISHED);
}

struct pair connected(void) {
  struct pair pair = requested(NULL);
  accepts(&pair);
  return pair;
}

void disconnect(struct pair* pair) {
  CHECK(!rdma_disconnect(pair->active.id));
  take_and_ack(pair->passive.channel, RDMA_CM_EVENT_DISCONNECTED);
}

void destroy_pair(struct pair* pair) {
  destroy_side(&pair->active);
  if (pair->passive.id->qp) rdma_destroy_qp(pair->passive.id);
  CHECK(!rdma_destroy_id(pair->passive.id));
  CHECK(!rdma_destroy_id(pair->listener));
  rdma_destroy_event_channel(pair->passive.channel);
}

/* ---- threads */

void wait_until_blocked(pid_t thread) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  while (state != 'S') {
    poll(NULL, 0, 1);
    FILE* file = fopen(path, "r");
    CHECK(file);
    CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
    fclose(file);
  }
}

struct ack {
  pid_t thread;
  struct rdma_cm_event* event;
  struct ibv_cq* cq;
};

static void* acknowledge(void* argument) {
  struct ack* ack = argument;
  wait_until_blocked(ack->thread);
  if (ack->event) rdma_ack_cm_event(ack->event);
  if (ack->cq) ibv_ack_cq_events(ack->cq, 1);
  free(ack);
  return NULL;
}

static void start_ack(struct rdma_cm_event* event, struct ibv_cq* cq) {
  struct ack* ack = malloc(sizeof *ack);
  *ack = (struct ack){gettid(), event, cq};
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, acknowledge, ack));
  pthread_detach(thread);
}
void ack_when_blocked(struct rdma_cm_event* event) { start_ack(event, NULL); }
void ack_cq_when_blocked(struct ibv_cq* cq) { start_ack(NULL, cq); }

/* ---- main */

static const struct use* const kUses[] = {kCmUses, kVerbsUses, kProcessUses};
enum { kTables = sizeof kUses / sizeof kUses[0], kLimit_s = 60 };

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "list")) {
    for (int i = 0; i < kTables; i++) {
      for (const struct use* use = kUses[i]; use->rule; use++) {
        printf("%s %s\n", use->rule, use->more ? use->more : "");
      }
    }
    return 0;
  }
  if (argc != 4) return 2;
  alarm(kLimit_s);
  CHECK(!getaddrinfo(argv[3], "7471", NULL, &address));
  const bool breaks = !strcmp(argv[2], "break");
  for (int i = 0; i < kTables; i++) {
    for (const struct use* use = kUses[i]; use->rule; use++) {
      if (strcmp(use->rule, argv[1])) continue;
      use->function(breaks);
      if (breaks && !use->needs_exit) _exit(0);
      freeaddrinfo(address);
      return 0;
    }
  }
  fprintf(stderr, "no rule %s\n", argv[1]);
  return 2;
}
