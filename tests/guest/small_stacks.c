/* Two threads make a connection, send a message and disconnect. No other thread has called before.
 * Prints how much of their stacks they have used, in bytes. A thread of the smallest size
 * (PTHREAD_STACK_MIN) has 16 KiB for this, with the frames of the program. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "need.h"

static char message[2][64];
static struct sockaddr_in server_at;
static pthread_barrier_t is_listening;

static struct rdma_cm_id* next(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  NEED(rdma_get_cm_event(channel, &event) == 0);
  NEED(event->event == type);
  struct rdma_cm_id* const id = event->id;
  NEED(rdma_ack_cm_event(event) == 0);
  return id;
}

static void create_qp(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  NEED(rdma_create_qp(id, NULL, &init) == 0);
}

static void transfer(struct rdma_cm_id* id, int sends) {
  struct ibv_mr* const mr = rdma_reg_msgs(id, message[sends], sizeof message[sends]);
  struct ibv_wc wc;
  NEED(mr != NULL);
  if (sends) {
    NEED(rdma_post_send(id, NULL, message[sends], sizeof message[sends], mr, 0) == 0);
    NEED(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
  } else {
    NEED(rdma_post_recv(id, NULL, message[sends], sizeof message[sends], mr) == 0);
  }
}

static void finish(struct rdma_cm_id* id) {
  rdma_destroy_qp(id);
  NEED(rdma_destroy_id(id) == 0);
}

static void* serve(void* unused) {
  (void)unused;
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  struct rdma_cm_id* listener;
  NEED(channel != NULL && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(listener, (struct sockaddr*)&server_at) == 0);
  server_at.sin_port = rdma_get_src_port(listener);
  NEED(rdma_listen(listener, 4) == 0);
  pthread_barrier_wait(&is_listening);
  struct rdma_cm_id* const id = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  create_qp(id);
  transfer(id, 0);
  struct rdma_conn_param parameters = {.rnr_retry_count = 7};
  NEED(rdma_accept(id, &parameters) == 0);
  next(channel, RDMA_CM_EVENT_ESTABLISHED);
  struct ibv_wc wc;
  NEED(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
  next(channel, RDMA_CM_EVENT_DISCONNECTED);
  NEED(rdma_disconnect(id) == 0);
  finish(id);
  NEED(rdma_destroy_id(listener) == 0);
  return NULL;
}

static void* connect_to_it(void* unused) {
  (void)unused;
  pthread_barrier_wait(&is_listening);
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  struct rdma_cm_id* id;
  NEED(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_resolve_addr(id, NULL, (struct sockaddr*)&server_at, 2000) == 0);
  next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  NEED(rdma_resolve_route(id, 2000) == 0);
  next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  create_qp(id);
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  NEED(rdma_connect(id, &parameters) == 0);
  next(channel, RDMA_CM_EVENT_ESTABLISHED);
  transfer(id, 1);
  NEED(rdma_disconnect(id) == 0);
  next(channel, RDMA_CM_EVENT_DISCONNECTED);
  finish(id);
  return NULL;
}

enum { kStackBytes = 64 * 1024 };

static pthread_t start(void* (*run)(void*), char** stack) {
  *stack = mmap(NULL, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(*stack != MAP_FAILED);
  pthread_attr_t on_it;
  pthread_attr_init(&on_it);
  NEED(pthread_attr_setstack(&on_it, *stack, kStackBytes) == 0);
  pthread_t thread;
  NEED(pthread_create(&thread, &on_it, run, NULL) == 0);
  return thread;
}

static size_t used(const char* stack) {
  size_t unused = 0;
  while (unused < kStackBytes && stack[unused] == 0) unused++;
  return kStackBytes - unused;
}

int main(int argc, char** argv) {
  NEED(argc == 2);
  alarm(60);
  server_at.sin_family = AF_INET;
  NEED(inet_pton(AF_INET, argv[1], &server_at.sin_addr) == 1);
  memset(message[1], 'm', sizeof message[1]);
  pthread_barrier_init(&is_listening, NULL, 2);
  char* stacks[2];
  const pthread_t server = start(serve, &stacks[0]), client = start(connect_to_it, &stacks[1]);
  NEED(pthread_join(server, NULL) == 0 && pthread_join(client, NULL) == 0);
  NEED(memcmp(message[0], message[1], sizeof message[0]) == 0);
  printf("used %zu and %zu\n", used(stacks[0]), used(stacks[1]));
  return 0;
}
