/* One thread polls in vain under a spin lock, without a pause. Another thread on the same processor
   takes the lock ten times. */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

enum {
  TAKES = 10,
  /* The thread tries for some ten seconds of processor time, because other work may get most of the
     time slices of the scheduler. */
  MOST_TRIES = 2000 * 1000 * 1000,
  POLLS_BETWEEN_TAKES = 1000
};

static struct ibv_cq* cq;
static atomic_flag lock = ATOMIC_FLAG_INIT;
static atomic_long polls;
static atomic_int is_over;

static int try_lock(void) { return !atomic_flag_test_and_set_explicit(&lock, memory_order_acquire); }
static void unlock(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

static void* poll_under_lock(void* unused) {
  struct ibv_wc wc;
  while (!is_over) {
    if (!try_lock()) continue;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    unlock();
    polls++;
  }
  return unused;
}

static int takes_lock(void) {
  for (long tries = 0; tries < MOST_TRIES; tries++) {
    if (try_lock()) return 1;
  }
  return 0;
}

/* Runs all threads on one processor. */
static void stay_on_one_processor(void) {
  cpu_set_t allowed, one;
  CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  CHECK(!sched_setaffinity(0, sizeof one, &one));
}

int main(void) {
  stay_on_one_processor();
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0]);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, poll_under_lock, NULL));
  int takes = 0;
  for (; takes < TAKES; takes++) {
    const long before = polls;
    while (polls - before < POLLS_BETWEEN_TAKES) sched_yield();
    if (!takes_lock()) break;
    unlock();
  }
  printf("took the lock %d times\n", takes);
  if (takes < TAKES) return 1; /* the other thread may hold the lock forever */
  is_over = 1;
  CHECK(!pthread_join(thread, NULL));
  CHECK(!ibv_destroy_cq(cq) && !ibv_close_device(context));
  ibv_free_device_list(list);
  return 0;
}
