/* A child binds an id of its own while a thread of its parent is in rdma_bind_addr, in the call
 * that opens the device: binds_in_child ADDRESS. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

static struct sockaddr_in address = {.sin_family = AF_INET};

static void* bind_one(void* unused) {
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  NEED(channel != NULL);
  struct rdma_cm_id* id;
  NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(id, (struct sockaddr*)&address) == 0);
  NEED(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
  return unused;
}

int main(int argc, char** argv) {
  NEED(argc == 2 && inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
  pthread_t thread;
  NEED(pthread_create(&thread, NULL, bind_one, NULL) == 0);
  puts("binding");
  fflush(stdout);
  char byte;
  NEED(read(STDIN_FILENO, &byte, 1) == 0); /* until the thread's call is held */
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    bind_one(NULL);
    _exit(0);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child);
  printf("child %d\n", status);
  fflush(stdout);
  NEED(pthread_join(thread, NULL) == 0);
  puts("bound");
  return 0;
}
