/* A thread is cancelled in rdma_get_cm_event while the library opens a file. Built with -rdynamic:
   the library's open(2) is this program's. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread int cancels;

int open(const char* path, int flags, ...) {
  if (cancels) pthread_cancel(pthread_self());
  pthread_testcancel(); /* as open(2) */
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

static struct sockaddr_in nobody;

/* Resolves an address on a channel of its own. Returns 0 on success. */
static int resolve(int is_cancelled) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id;
  struct rdma_cm_event* event;
  int old;
  if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) return 1;
  if (rdma_resolve_addr(id, NULL, (struct sockaddr*)&nobody, 2000)) return 2;
  cancels = is_cancelled;
  const int failed = rdma_get_cm_event(channel, &event);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
  cancels = 0;
  if (failed || event->event != RDMA_CM_EVENT_ADDR_RESOLVED) return 3;
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  pthread_setcancelstate(old, NULL);
  pthread_testcancel();
  return 0;
}

static void* run(void* unused) {
  (void)unused;
  resolve(1);
  return NULL;
}

/* Waits for an acknowledgement that never comes, which is a cancellation point. */
static struct rdma_cm_id* g_waiting;
static void* destroy(void* unused) {
  (void)unused;
  rdma_destroy_id(g_waiting);
  return NULL;
}

int main(void) {
  pthread_t thread;
  void* result;
  nobody.sin_family = AF_INET;
  nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  nobody.sin_port = htons(9);
  pthread_create(&thread, NULL, run, NULL);
  pthread_join(thread, &result);
  printf("cancelled %d\n", result == PTHREAD_CANCELED);
  fflush(stdout);
  printf("resolved %d\n", resolve(0) == 0);

  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_event* event;
  if (rdma_create_id(channel, &g_waiting, NULL, RDMA_PS_TCP) ||
      rdma_resolve_addr(g_waiting, NULL, (struct sockaddr*)&nobody, 2000) ||
      rdma_get_cm_event(channel, &event)) {
    return 1;
  }
  pthread_create(&thread, NULL, destroy, NULL);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  printf("destroy cancelled %d\n", result == PTHREAD_CANCELED);
  return 0;
}
