/* Threads are cancelled in rdma_get_cm_event: while the library opens a file, and when read(2) has
   taken the count of an event but not returned. Built with -rdynamic: the library's open(2) and
   read(2) are this program's. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread int cancels, cancels_read;

int open(const char* path, int flags, ...) {
  if (cancels) pthread_cancel(pthread_self());
  pthread_testcancel(); /* as open(2) */
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

ssize_t read(int fd, void* bytes, size_t size) {
  const ssize_t got = syscall(SYS_read, fd, bytes, size);
  if (cancels_read) pthread_cancel(pthread_self());
  pthread_testcancel(); /* as read(2) */
  return got;
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

/* Fetches an event of the channel, and is cancelled meanwhile. */
static void* fetch(void* channel) {
  struct rdma_cm_event* event;
  cancels_read = 1;
  rdma_get_cm_event(channel, &event);
  return NULL;
}

/* Returns 1 if the event of a cancelled thread waits for another one. */
static int another_fetches(void) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id;
  struct rdma_cm_event* event;
  pthread_t thread;
  void* result;
  if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) return -1;
  if (rdma_resolve_addr(id, NULL, (struct sockaddr*)&nobody, 2000)) return -2;
  pthread_create(&thread, NULL, fetch, channel);
  pthread_join(thread, &result);
  struct pollfd waits = {channel->fd, POLLIN, 0};
  if (result != PTHREAD_CANCELED || poll(&waits, 1, 0) != 1) return 0;
  if (rdma_get_cm_event(channel, &event)) return -3;
  rdma_ack_cm_event(event);
  const int is_empty = poll(&waits, 1, 0) == 0;
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  return is_empty;
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
  printf("another fetches %d\n", another_fetches());

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
