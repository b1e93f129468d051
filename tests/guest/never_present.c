/* Registers memory whose pages never become present (userfaultfd(2) without a handler). This
 * thread blocks, but other threads and programs continue. Exit status 77: the kernel refuses
 * userfaultfd. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kBytes = 65536 };

static struct ibv_pd* pd;
static char* memory;
static int faults;

static void* register_it(void* argument) {
  (void)argument;
  ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  puts("registered");
  _exit(1);
}

int main(void) {
  alarm(60);
  faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return perror("userfaultfd"), 77;
  memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register all = {.range = {(uintptr_t)memory, kBytes},
                                .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (memory == MAP_FAILED || ioctl(faults, UFFDIO_REGISTER, &all)) return perror("register"), 77;
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (!context || !(pd = ibv_alloc_pd(context))) return perror("ibv_open_device"), 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, register_it, NULL)) return 1;
  struct uffd_msg fault; /* the thread waits for the page */
  if (read(faults, &fault, sizeof fault) != sizeof fault) return perror("read"), 1;
  struct ibv_port_attr attr;
  if (ibv_query_port(context, 1, &attr)) return perror("ibv_query_port"), 1;
  puts("the host answers");
  fflush(stdout);
  _exit(0);
}
