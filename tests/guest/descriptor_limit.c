// A process without free descriptors gets EMFILE, as from open(2) of the kernel's devices. The host
// does not keep the objects that the call could not return.
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s: errno %d\n", what, errno);
  exit(1);
}

// Returns the first free number.
static int first_free(void) {
  const int next = dup(0);
  check(next >= 0, "dup");
  close(next);
  return next;
}

// Permits `count` more descriptors than `used`.
static void leave_room_for(int used, int count) {
  struct rlimit limit;
  check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = (rlim_t)(used + count);
  check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

int main(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  check(devices != NULL && devices[0] != NULL, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(devices[0]);
  check(context != NULL, "ibv_open_device");
  const int used = first_free();
  leave_room_for(used, 0);
  for (int i = 0; i < 100; i++) {
    errno = 0;
    check(ibv_create_comp_channel(context) == NULL && errno == EMFILE, "ibv_create_comp_channel");
    errno = 0;
    check(rdma_create_event_channel() == NULL && errno == EMFILE, "rdma_create_event_channel");
    struct rdma_cm_id* id = NULL;
    errno = 0;
    check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == EMFILE, "rdma_create_id");
    errno = 0;
    check(ibv_open_device(devices[0]) == NULL && errno == EMFILE, "ibv_open_device");
  }
  leave_room_for(used, 1);
  errno = 0;
  check(ibv_open_device(devices[0]) == NULL && errno == EMFILE, "ibv_open_device needs two");
  leave_room_for(used, 8);
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  check(channel != NULL, "the next call works");
  printf("at the limit\n");
  fflush(stdout);
  (void)!read(0, &errno, 1);
  return 0;
}
