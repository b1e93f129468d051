/* Uses a device after main: in a function of atexit(3) and in a static destructor. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static struct ibv_context* context;

static void use(const char* when) {
  static char memory[4096];
  struct ibv_port_attr port;
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_mr* mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE) : NULL;
  printf("%s: queried %d, registered %d", when, ibv_query_port(context, 1, &port) == 0, mr != NULL);
  printf(", freed %d\n", mr && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void at_exit(void) { use("atexit"); }

__attribute__((destructor)) static void destroy(void) {
  use("destructor");
  printf("closed %d\n", ibv_close_device(context) == 0);
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  ibv_free_device_list(list);
  if (!context) return perror("ibv_open_device"), 1;
  return atexit(at_exit);
}
