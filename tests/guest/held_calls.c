/* Threads whose calls a fault rule holds, beside threads that make other calls: held_calls HELD
 * OTHERS. With a driver, no thread waits for the call of another one. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "need.h"

enum { kMost = 64, kRounds = 100 };

static struct ibv_context* device;
static struct rdma_event_channel* channel;

static void* free_domain(void* domain) {
  NEED(ibv_dealloc_pd(domain) == 0);
  return NULL;
}

static void* call_others(void* unused) {
  static char memory[4096];
  struct ibv_pd* const domain = ibv_alloc_pd(device);
  NEED(domain != NULL);
  for (int i = 0; i < kRounds; i++) {
    struct ibv_mr* const mr = ibv_reg_mr(domain, memory, sizeof memory, 0);
    NEED(mr != NULL && ibv_dereg_mr(mr) == 0);
    struct rdma_cm_id* id;
    NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0);
    struct rdma_cm_event* event;
    NEED(rdma_get_cm_event(channel, &event) == -1);
  }
  return unused;
}

int main(int argc, char** argv) {
  const int threads = argc == 3 ? atoi(argv[1]) : 0, others = argc == 3 ? atoi(argv[2]) : 0;
  NEED(threads > 0 && threads <= kMost && others > 0 && others <= kMost);
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  device = ibv_open_device(list[0]);
  NEED(device != NULL);
  ibv_free_device_list(list);
  channel = rdma_create_event_channel();
  NEED(channel != NULL && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
  pthread_t thread[kMost], other[kMost];
  /* Before the first held call, because all pages for calls may be held. */
  struct ibv_pd* domain[kMost];
  for (int i = 0; i < threads; i++) NEED((domain[i] = ibv_alloc_pd(device)) != NULL);
  for (int i = 0; i < threads; i++) {
    NEED(pthread_create(&thread[i], NULL, free_domain, domain[i]) == 0);
  }
  puts("calling");
  fflush(stdout);
  char byte;
  NEED(read(STDIN_FILENO, &byte, 1) == 0); /* until the calls are held */
  for (int i = 0; i < others; i++) {
    NEED(pthread_create(&other[i], NULL, call_others, NULL) == 0);
  }
  for (int i = 0; i < others; i++) NEED(pthread_join(other[i], NULL) == 0);
  puts("went on");
  fflush(stdout);
  for (int i = 0; i < threads; i++) NEED(pthread_join(thread[i], NULL) == 0);
  printf("freed %d\n", threads);
  rdma_destroy_event_channel(channel);
  return 0;
}
