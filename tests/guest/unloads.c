/* Unloads librdmacm while its thread looks up a name. Linked with -rdynamic, so that the library
 * calls this getaddrinfo. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static int to_lookup[2], from_lookup[2];

int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints,
                struct addrinfo** out) {
  (void)node, (void)service, (void)hints, (void)out;
  char byte = 0;
  if (write(from_lookup[1], &byte, 1) != 1 || read(to_lookup[0], &byte, 1) < 0) return EAI_SYSTEM;
  return EAI_NONAME;
}

static int threads(void) {
  DIR* tasks = opendir("/proc/self/task");
  int count = 0;
  while (readdir(tasks)) count++;
  closedir(tasks);
  return count - 2;
}

#define FIND(name) __typeof__(name)* find_##name = (__typeof__(name)*)dlsym(library, #name)

int main(void) {
  if (pipe(to_lookup) || pipe(from_lookup)) return 2;
  alarm(60);
  void* library = dlopen("librdmacm.so.1", RTLD_NOW);
  if (!library) return puts(dlerror()), 2;
  FIND(rdma_create_event_channel);
  FIND(rdma_create_id);
  FIND(rdma_destroy_id);
  FIND(rdma_destroy_event_channel);
  int (*resolve)(struct rdma_cm_id*, const char*, const char*, const struct rdma_addrinfo*) =
      (int (*)(struct rdma_cm_id*, const char*, const char*, const struct rdma_addrinfo*))dlsym(
          library, "rdma_resolve_addrinfo");
  struct rdma_event_channel* channel = find_rdma_create_event_channel();
  struct rdma_cm_id* id;
  if (!channel || find_rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) return perror("create"), 1;
  const int before = threads();
  if (resolve(id, "a.name", "7", NULL)) return perror("rdma_resolve_addrinfo"), 1;
  char byte;
  if (read(from_lookup[0], &byte, 1) != 1) return 2;
  find_rdma_destroy_id(id);
  find_rdma_destroy_event_channel(channel);
  printf("dlclose %d\n", dlclose(library));
  fflush(stdout);
  close(to_lookup[1]);
  while (threads() > before) sched_yield();
  puts("alive");
  return 0;
}
