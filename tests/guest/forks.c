/* Forks once for each line of input: first a child that uses nothing, then one that uses its
 * parent's device. usage: forks [call] (call: another thread registers memory meanwhile) */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context* context;

static void* call(void* pd) {
  static char bytes[4096];
  struct ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
  printf("registered %d\n", mr != NULL);
  return NULL;
}

static int in_child(int uses_device) {
  struct ibv_device_attr attr;
  const pid_t child = fork();
  if (child == 0) _exit(uses_device ? ibv_query_device(context, &attr) : 0);
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  (void)arguments;
  struct ibv_device** list = ibv_get_device_list(NULL);
  context = ibv_open_device(list[0]);
  pthread_t thread;
  if (count > 1) pthread_create(&thread, NULL, call, ibv_alloc_pd(context));
  puts("ready");
  getchar();
  printf("forked %d\n", in_child(0));
  getchar();
  printf("used %d\n", in_child(1));
  if (count > 1) pthread_join(thread, NULL);
  return 0;
}
