/* A librdmacm for resolves.c. Its rdma_resolve_addr returns while another thread is in the
   rdma_get_cm_event that has set the id's members, as the scheduler may have it. The layer gets this
   library as the library behind. It forwards to the library that LATE_RESOLVE_BEHIND names. */
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdlib.h>

static int ids;

static void* behind(const char* name) {
  void* library = dlopen(getenv("LATE_RESOLVE_BEHIND"), RTLD_NOW | RTLD_LOCAL);
  void* found = library ? dlsym(library, name) : NULL;
  if (!found) abort();
  return found;
}

#define BEHIND(name) ((__typeof__(&name))behind(#name))

struct rdma_event_channel* rdma_create_event_channel(void) {
  return BEHIND(rdma_create_event_channel)();
}

int rdma_create_id(struct rdma_event_channel* channel, struct rdma_cm_id** id, void* context,
                   enum rdma_port_space ps) {
  __atomic_fetch_add(&ids, 1, __ATOMIC_RELEASE);
  return BEHIND(rdma_create_id)(channel, id, context, ps);
}

int rdma_get_cm_event(struct rdma_event_channel* channel, struct rdma_cm_event** event) {
  int result = BEHIND(rdma_get_cm_event)(channel, event);
  /* The program creates its second id after rdma_resolve_addr. */
  while (__atomic_load_n(&ids, __ATOMIC_ACQUIRE) < 2) sched_yield();
  return result;
}

int rdma_ack_cm_event(struct rdma_cm_event* event) { return BEHIND(rdma_ack_cm_event)(event); }

int rdma_resolve_addr(struct rdma_cm_id* id, struct sockaddr* from, struct sockaddr* to,
                      int timeout_ms) {
  int result = BEHIND(rdma_resolve_addr)(id, from, to, timeout_ms);
  while (result == 0 && __atomic_load_n(&id->verbs, __ATOMIC_ACQUIRE) == NULL) sched_yield();
  return result;
}
