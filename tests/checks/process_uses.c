/* Uses of threads, processes, signal handlers and exit, by rule. */
#include <signal.h>
#include <sys/wait.h>

#include "uses.h"

/* A thread that waits in a call, and its id. */
static _Atomic pid_t waiter;

static void* waits_for_cm_event(void* channel) {
  struct rdma_cm_event* event;
  waiter = gettid();
  rdma_get_cm_event(channel, &event);
  return NULL;
}
static void* waits_for_cq_event(void* channel) {
  struct ibv_cq* cq;
  void* context;
  waiter = gettid();
  ibv_get_cq_event(channel, &cq, &context);
  return NULL;
}
static void* waits_for_async_event(void* context) {
  struct ibv_async_event event;
  waiter = gettid();
  ibv_get_async_event(context, &event);
  return NULL;
}
static void starts(void* (*function)(void*), void* argument) {
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, function, argument));
  while (waiter == 0) poll(NULL, 0, 1);
  wait_until_blocked(waiter);
}

static void thread_001(bool breaks) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  CHECK(channel);
  if (breaks) starts(waits_for_cm_event, channel);
  rdma_destroy_event_channel(channel);
}
static void thread_002(bool breaks) {
  struct ibv_context* context = open_device();
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  CHECK(channel);
  if (breaks) starts(waits_for_cq_event, channel);
  ibv_destroy_comp_channel(channel);
  if (!breaks) CHECK(!ibv_close_device(context));
}
static void thread_003(bool breaks) {
  struct ibv_context* context = open_device();
  if (breaks) starts(waits_for_async_event, context);
  ibv_close_device(context);
}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void thread_005(bool breaks) {
  struct side side = resolved_address();
  const pid_t child = fork();
  if (child == 0) _exit(breaks && !rdma_resolve_route(side.id, 1000));
  wait_for(child);
  destroy_side(&side);
}

static void in_handler(int number) {
  (void)number;
  rdma_destroy_event_channel(rdma_create_event_channel());
}
static void thread_006(bool breaks) {
  if (!breaks) return in_handler(0);
  signal(SIGUSR1, in_handler);
  raise(SIGUSR1);
}

static void thread_007(bool breaks) {
  struct device device = make_device();
  struct ibv_qp* qp = make_qp(&device);
  const pid_t child = fork();
  if (child == 0) {
    if (breaks) ibv_destroy_qp(qp);
    _exit(0);
  }
  wait_for(child);
  ibv_destroy_qp(qp);
  destroy_device(&device);
}

static void exit_001(bool breaks) {
  struct side side = resolved_address();
  CHECK(!rdma_resolve_route(side.id, 5000));
  struct rdma_cm_event* event = take(side.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  if (breaks) return;
  CHECK(!rdma_ack_cm_event(event));
  destroy_side(&side);
}
static void exit_002(bool breaks) {
  struct rdma_cm_id* id;
  CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
  if (!breaks) CHECK(!rdma_destroy_id(id));
}
static void exit_003(bool breaks) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  CHECK(channel);
  if (!breaks) rdma_destroy_event_channel(channel);
}

const struct use kProcessUses[] = {
    {.rule = "THREAD-001", thread_001},
    {.rule = "THREAD-002", thread_002},
    {.rule = "THREAD-003", thread_003},
    {.rule = "THREAD-005", thread_005},
    {.rule = "THREAD-006", thread_006},
    {.rule = "THREAD-007", thread_007},
    {.rule = "EXIT-001", exit_001, .more = "EXIT-002 EXIT-003", .needs_exit = true},
    {.rule = "EXIT-002", exit_002, .needs_exit = true},
    {.rule = "EXIT-003", exit_003, .needs_exit = true},
    {0},
};
