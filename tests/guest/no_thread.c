/* The libraries' thread cannot start at first. Calls that need the thread fail with
 * pthread_create's errno, and succeed later. Linked with -rdynamic, so that the libraries call this
 * pthread_create. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

static int refused;

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  (void)thread, (void)attributes, (void)run, (void)argument;
  refused++;
  return EAGAIN;
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  if (!list || !list[0]) return perror("ibv_get_device_list"), 1;
  errno = 0;
  struct ibv_context* context = ibv_open_device(list[0]);
  printf("open_device %d %d\n", context != NULL, errno == EAGAIN);
  errno = 0;
  struct rdma_event_channel* channel = rdma_create_event_channel();
  printf("create_event_channel %d %d\n", channel != NULL, errno == EAGAIN);
  printf("refused %d\n", refused);
  return 0;
}
