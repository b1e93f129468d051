/* A program with 200 KiB of thread-local storage waits for a completion when its host dies. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

__thread char large[200 * 1024];

int main(int argc, char** argv) {
  (void)argv;
  large[argc] = 1;
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (!context) return perror("ibv_open_device"), 1;
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  struct ibv_cq* cq = ibv_create_cq(context, 10, NULL, channel, 0);
  if (!cq || ibv_req_notify_cq(cq, 0)) return perror("ibv_create_cq"), 1;
  puts("waiting");
  fflush(stdout);
  void* cq_context;
  int result = ibv_get_cq_event(channel, &cq, &cq_context);
  printf("result %d: %s\n", result, strerror(errno));
  return 0;
}
