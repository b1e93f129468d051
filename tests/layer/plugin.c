/* A plug-in that is linked against libibverbs. loads_plugin.c loads it with RTLD_LOCAL. */
#include <infiniband/verbs.h>

int plugin_run(void) {
  struct ibv_device** list = ibv_get_device_list(0);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : 0;
  if (!context) return 1;
  ibv_free_device_list(list);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  return pd ? ibv_dealloc_pd(pd) || ibv_close_device(context) : 1;
}
