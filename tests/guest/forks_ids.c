/* Forks while other threads create and destroy ids. Each child creates an id of its own. The other
 * threads keep each mutex for a while, so that most forks happen while one of them holds a mutex.
 * They cannot wait for the fork itself, because fork() takes some of these mutexes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

enum { kThreads = 2, kForks = 40, kHold_us = 100, kLimit_s = 30 };

static __thread int holds;
static volatile int ends;

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  static int (*unlock)(pthread_mutex_t*);
  if (unlock == NULL) unlock = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  if (holds) usleep(kHold_us);
  return unlock(mutex);
}

static void create_and_destroy(void) {
  struct rdma_cm_id* id;
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  NEED(channel != NULL);
  NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
}

static void* keep_creating(void* unused) {
  (void)unused;
  holds = 1;
  while (!ends) create_and_destroy();
  return NULL;
}

int main(void) {
  pthread_t threads[kThreads];
  create_and_destroy();
  for (int i = 0; i < kThreads; i++)
    NEED(pthread_create(&threads[i], NULL, keep_creating, NULL) == 0);
  for (int i = 0; i < kForks; i++) {
    const pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
      alarm(kLimit_s);
      create_and_destroy();
      _exit(0);
    }
    int status = -1;
    NEED(waitpid(child, &status, 0) == child);
    if (status != 0) printf("fork %d: the child ended with %#x\n", i, status);
    NEED(status == 0);
  }
  ends = 1;
  for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
  return 0;
}
