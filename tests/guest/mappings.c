/* Registers a small region many times in a process with 20,000 mappings, once its input says so.
 * Prints how many bytes the program read meanwhile (rchar of proc(5)). */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { kAreas = 10000, kRegistrations = 50, kPage = 4096 };

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static unsigned long long bytes_read(void) {
  unsigned long long bytes = 0;
  FILE* io = fopen("/proc/self/io", "r");
  if (io == NULL || fscanf(io, "rchar: %llu", &bytes) != 1) exit(77);
  fclose(io);
  return bytes;
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  if (list == NULL || list[0] == NULL) fail("ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  if (context == NULL) fail("ibv_open_device");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == NULL) fail("ibv_alloc_pd");
  /* Later mappings have lower addresses, so this page is behind the others in /proc/PID/maps. */
  char* memory = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  /* Pages of alternating rights do not merge: two mappings for each area. */
  for (int i = 0; i < kAreas; i++) {
    char* area = mmap(NULL, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || mprotect(area, kPage, PROT_READ) != 0) fail("mmap");
  }
  puts("mapped");
  fflush(stdout);
  getchar();
  const unsigned long long before = bytes_read();
  for (int i = 0; i < kRegistrations; i++) {
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, kPage, IBV_ACCESS_LOCAL_WRITE);
    if (mr == NULL) fail("ibv_reg_mr");
    ibv_dereg_mr(mr);
  }
  printf("%d registrations: %llu bytes read\n", kRegistrations, bytes_read() - before);
  fflush(stdout);
  getchar(); /* the host lives as long as this program */
  return 0;
}
