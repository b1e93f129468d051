/* Signals that arrive while ibv_get_cq_event yields, before it sleeps. The program's own
 * sched_yield sends them, so that each arrives within a yield. It also counts the yields of
 * rdma_get_cm_event, which must sleep at once. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "need.h"

/* A call that finds its host busy on this processor may sleep without a yield, so it is repeated.
 */
enum { kMostRounds = 200, kAlarmAfter_us = 50000 };

static volatile sig_atomic_t sends_at_yield, signals, alarms, yields;

int sched_yield(void) {
  yields++;
  if (sends_at_yield) {
    sends_at_yield = 0;
    raise(SIGUSR1);
  }
  return (int)syscall(SYS_sched_yield);
}

static void count_signal(int number) { (void)number, signals++; }
static void count_alarm(int number) { (void)number, alarms++; }

static void install(int number, void (*handler)(int), int flags) {
  const struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  NEED(sigaction(number, &action, NULL) == 0);
}

static struct ibv_comp_channel* completions;

static int get_cq_event(void) {
  struct ibv_cq* cq;
  void* context;
  return ibv_get_cq_event(completions, &cq, &context);
}

/* Returns how often rdma_get_cm_event yields until an alarm ends it. */
static int yields_of_cm_wait(void) {
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  NEED(channel != NULL);
  const struct itimerval timer = {{0, kAlarmAfter_us}, {0, kAlarmAfter_us}};
  NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  yields = 0;
  struct rdma_cm_event* event;
  NEED(rdma_get_cm_event(channel, &event) == -1 && errno == EINTR);
  return yields;
}

/* Returns how many alarms it took to end the call in which a signal arrived within a yield. */
static int alarms_to_end(int flags) {
  install(SIGUSR1, count_signal, flags);
  for (int round = 0; round < kMostRounds; round++) {
    signals = alarms = 0;
    sends_at_yield = 1;
    const struct itimerval timer = {{0, kAlarmAfter_us}, {0, kAlarmAfter_us}};
    NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    const int result = get_cq_event();
    const int error = errno, ended_by = alarms;
    const struct itimerval none = {{0, 0}, {0, 0}};
    NEED(setitimer(ITIMER_REAL, &none, NULL) == 0);
    NEED(result == -1 && error == EINTR);
    if (signals == 1) return ended_by;
  }
  return -1;
}

int main(void) {
  install(SIGALRM, count_alarm, 0);
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  struct ibv_context* const device = ibv_open_device(list[0]);
  NEED(device != NULL);
  completions = ibv_create_comp_channel(device);
  NEED(completions != NULL);
  printf("%d alarms, with SA_RESTART %d\n", alarms_to_end(0), alarms_to_end(SA_RESTART));
  printf("rdma_get_cm_event: %d yields\n", yields_of_cm_wait());
  return 0;
}
