/* A signal handler that polls a CQ of its own, while the threads that it interrupts make calls:
 * handler_calls THREADS. If a fault rule is at polls, each poll makes a call, too. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "need.h"

enum { kMost = 64, kRounds = 300, kEvery_us = 500 };

static struct ibv_context* device;
static struct ibv_cq* idle;

static void poll_idle(int signal_number) {
  (void)signal_number;
  const int before = errno;
  struct ibv_wc wc;
  (void)ibv_poll_cq(idle, 1, &wc);
  errno = before;
}

static void* call(void* unused) {
  for (int i = 0; i < kRounds; i++) {
    struct ibv_pd* const domain = ibv_alloc_pd(device);
    NEED(domain != NULL && ibv_dealloc_pd(domain) == 0);
  }
  return unused;
}

int main(int argc, char** argv) {
  const int threads = argc == 2 ? atoi(argv[1]) : 0;
  NEED(threads > 0 && threads <= kMost);
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  device = ibv_open_device(list[0]);
  NEED(device != NULL);
  idle = ibv_create_cq(device, 1, NULL, NULL, 0);
  NEED(idle != NULL);
  const struct sigaction action = {.sa_handler = poll_idle, .sa_flags = SA_RESTART};
  NEED(sigaction(SIGALRM, &action, NULL) == 0);
  pthread_t thread[kMost];
  for (int i = 0; i < threads; i++) NEED(pthread_create(&thread[i], NULL, call, NULL) == 0);
  /* The signals go to the threads that call. */
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  NEED(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
  const struct itimerval timer = {{0, kEvery_us}, {0, kEvery_us}};
  NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  for (int i = 0; i < threads; i++) NEED(pthread_join(thread[i], NULL) == 0);
  puts("called");
  return 0;
}
