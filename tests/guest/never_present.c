/* Registers a file's pages, which never become present: the file system (fuse(4)) does not answer
 * READ. This thread blocks, but other threads and programs continue. Exit status 77: the kernel
 * refuses an ordinary user a FUSE file system of his own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBytes = 65536, kSkipped = 77 };

static struct ibv_pd* pd;
static char* memory;
static atomic_int ends;

static void skip(const char* why) {
  perror(why);
  _exit(kSkipped);
}

static void write_to(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY);
  if (fd >= 0 && write(fd, text, strlen(text)) < 0) perror(path);
  if (fd >= 0) close(fd);
}

/* Mounts a file system that is one file over PATH, in namespaces of this process. Returns the
 * descriptor of its requests. */
static int mount_one_file(const char* path) {
  char text[128];
  const unsigned user = getuid(), group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) skip("unshare");
  write_to("/proc/self/setgroups", "deny");
  snprintf(text, sizeof text, "0 %u 1", user);
  write_to("/proc/self/uid_map", text);
  snprintf(text, sizeof text, "0 %u 1", group);
  write_to("/proc/self/gid_map", text);
  const int requests = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (requests < 0) skip("/dev/fuse");
  snprintf(text, sizeof text, "fd=%d,rootmode=100600,user_id=0,group_id=0", requests);
  if (mount("never_present", path, "fuse", MS_NOSUID | MS_NODEV, text)) skip("mount");
  return requests;
}

static void answer(int requests, uint64_t unique, int error, const void* body, size_t bytes) {
  char reply[256];
  const struct fuse_out_header header = {(uint32_t)(sizeof header + bytes), -error, unique};
  memcpy(reply, &header, sizeof header);
  if (bytes > 0) memcpy(reply + sizeof header, body, bytes);
  if (write(requests, reply, header.len) < 0) perror("answer");
}

/* Answers requests until the file system is unmounted. Writes a byte to `started` for each READ,
 * which is not answered. */
static void serve(int requests, int started) {
  static char request[1 << 20];
  while (read(requests, request, sizeof request) > 0) {
    const struct fuse_in_header* in = (const struct fuse_in_header*)request;
    const struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31};
    const struct fuse_attr_out attr = {
        .attr = {.ino = 1, .size = kBytes, .mode = S_IFREG | 0600, .nlink = 1}};
    const struct fuse_open_out opened = {.fh = 1};
    if (in->opcode == FUSE_INIT) {
      answer(requests, in->unique, 0, &init, sizeof init);
    } else if (in->opcode == FUSE_GETATTR) {
      answer(requests, in->unique, 0, &attr, sizeof attr);
    } else if (in->opcode == FUSE_OPEN) {
      answer(requests, in->unique, 0, &opened, sizeof opened);
    } else if (in->opcode == FUSE_READ) {
      if (write(started, "r", 1) != 1) perror("pipe");
    } else {
      answer(requests, in->unique, ENOSYS, NULL, 0);
    }
  }
}

/* Starts the file system in a child, because its requests end with the last process that has their
 * descriptor. Returns the child, and in `started` the descriptor that shows each READ. */
static pid_t start_file_system(const char* path, int* started) {
  int shown[2], ready[2];
  char byte;
  if (pipe(shown) || pipe(ready)) return perror("pipe"), -1;
  const pid_t child = fork();
  if (child == 0) {
    const int requests = mount_one_file(path);
    /* unshare(2) resets both. The parent opens the file through this process in /proc. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 1);
    if (write(ready[1], "m", 1) != 1) skip("pipe");
    serve(requests, shown[1]);
    _exit(0);
  }
  close(shown[1]);
  close(ready[1]);
  if (read(ready[0], &byte, 1) != 1) _exit(kSkipped);
  *started = shown[0];
  return child;
}

static void* register_it(void* argument) {
  (void)argument;
  ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  if (!ends) {
    puts("registered");
    fflush(stdout);
    _exit(1);
  }
  return NULL;
}

int main(void) {
  alarm(60);
  char file[] = "/tmp/never_present.XXXXXX", path[128], byte;
  int started = -1;
  close(mkstemp(file));
  const pid_t child = start_file_system(file, &started);
  snprintf(path, sizeof path, "/proc/%d/root%s", child, file);
  const int fd = open(path, O_RDWR);
  unlink(file);
  struct stat size; /* the kernel asks for it, and then allows faults up to it */
  if (fd < 0 || fstat(fd, &size)) return perror(path), 1;
  memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return perror("mmap"), 1;
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (!context || !(pd = ibv_alloc_pd(context))) return perror("ibv_open_device"), 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, register_it, NULL)) return 1;
  if (read(started, &byte, 1) != 1) return perror("read"), 1; /* the thread waits for the page */
  struct ibv_port_attr attr;
  if (ibv_query_port(context, 1, &attr)) return perror("ibv_query_port"), 1;
  puts("the host answers");
  fflush(stdout);
  ends = 1;
  kill(child, SIGKILL); /* this alone lets the thread end */
  waitpid(child, NULL, 0);
  _exit(0);
}
