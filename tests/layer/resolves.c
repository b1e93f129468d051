/* Resolves an address with an id of the program's own channel, whose events another thread takes,
   and with an id that has no channel of the program.

   resolves ADDRESS */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

static void* take_event(void* channel) {
  struct rdma_cm_event* event;
  CHECK(!rdma_get_cm_event(channel, &event));
  CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id->verbs);
  CHECK(!rdma_ack_cm_event(event));
  return NULL;
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};
  CHECK(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
  struct rdma_event_channel* channel = rdma_create_event_channel();
  CHECK(channel);
  pthread_t taker;
  CHECK(!pthread_create(&taker, NULL, take_event, channel));
  struct rdma_cm_id *asynchronous, *synchronous;
  CHECK(!rdma_create_id(channel, &asynchronous, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(asynchronous, NULL, (struct sockaddr*)&address, 2000));
  CHECK(!rdma_create_id(NULL, &synchronous, NULL, RDMA_PS_TCP));
  CHECK(!pthread_join(taker, NULL));
  CHECK(!rdma_resolve_addr(synchronous, NULL, (struct sockaddr*)&address, 2000));
  return 0;
}
