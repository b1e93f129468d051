/* A daemon that closes all unknown descriptors and opens files of its own. Its RDMA calls fail,
 * and its files do not change. usage: closes_all self|child DIRECTORY */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kFiles = 40 };
static const char kText[] = "sixteen bytes...";

static int open_file(const char* directory, int number) {
  char path[512];
  snprintf(path, sizeof path, "%s/%d.%d", directory, (int)getpid(), number);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (write(fd, kText, sizeof kText) != sizeof kText) return -1;
  lseek(fd, 0, SEEK_SET);
  return fd;
}

/* Every second file is an eventfd, like the libraries' own descriptors. */
static void open_all(const char* directory, int* fds) {
  for (int i = 0; i < kFiles; i++) {
    fds[i] = i % 2 ? eventfd(0, EFD_NONBLOCK) : open_file(directory, i);
  }
}

static int changed(const int* fds) {
  int count = 0;
  for (int i = 0; i < kFiles; i++) {
    struct stat status;
    uint64_t value;
    const int is_open = fstat(fds[i], &status) == 0;
    const int same =
        is_open && (i % 2 ? read(fds[i], &value, sizeof value) < 0 && errno == EAGAIN
                          : status.st_size == sizeof kText && lseek(fds[i], 0, SEEK_CUR) == 0);
    if (same) continue;
    printf("file %d (descriptor %d) was changed\n", i, fds[i]);
    count++;
  }
  return count;
}

/* Calls until one fails. The pauses let the host go to sleep. */
static int first_error(struct ibv_context* context) {
  struct ibv_device_attr attr;
  for (int i = 0; i < 200; i++) {
    const int error = ibv_query_device(context, &attr);
    if (error) return error;
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  alarm(60);
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (!context) return perror("ibv_open_device"), 1;
  struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
  struct rdma_event_channel* events = rdma_create_event_channel();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  if (!channel || !events || !pd) return perror("create"), 1;
  const int in_child = strcmp(argv[1], "child") == 0;
  if (in_child) {
    const pid_t child = fork();
    if (child > 0) {
      int status;
      waitpid(child, &status, 0);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
    }
  }

  /* Opens files from the libraries' own numbers on, so that each number becomes another file. */
  int fds[kFiles];
  closefrom(3);
  open_all(argv[2], fds);
  const int error = first_error(context);
  printf("error %s\n", error ? strerrorname_np(error) : "none");
  struct ibv_cq* cq;
  void* cq_context;
  struct ibv_async_event event;
  struct rdma_cm_event* cm_event;
  /* The numbers are files and eventfds alternately. A wait on an eventfd would block for ever.
   * */
  for (int i = 0; i < kFiles; i += 2) {
    if (channel->fd == fds[i])
      printf("get_cq_event %d\n", ibv_get_cq_event(channel, &cq, &cq_context));
    if (context->async_fd == fds[i])
      printf("get_async_event %d\n", ibv_get_async_event(context, &event));
    if (events->fd == fds[i]) printf("get_cm_event %d\n", rdma_get_cm_event(events, &cm_event));
  }
  ibv_dealloc_pd(pd);
  ibv_destroy_comp_channel(channel);
  rdma_destroy_event_channel(events);
  ibv_close_device(context);
  const int count = changed(fds);
  printf("changed %d\n", count);
  return count != 0;
}
