/* Programs of unusual shapes: shapes HOW. Each opens a device. HOW says where it allocates a PD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context* first_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (list) ibv_free_device_list(list);
  if (!context) perror("open"), exit(1);
  return context;
}

static void use(struct ibv_context* context) {
  struct ibv_pd* pd = ibv_alloc_pd(context);
  if (!pd || ibv_dealloc_pd(pd)) perror("pd"), _exit(1);
}

static void* use_in_thread(void* context) {
  for (int i = 0; i < 100; i++) use(context);
  return NULL;
}

static struct ibv_context* volatile late_context;
static void in_handler(int number) {
  (void)number;
  use(late_context);
}
__attribute__((destructor)) static void at_end(void) {
  if (late_context) use(late_context);
}

static int wait_for(pid_t child) {
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static int forks(struct ibv_context* context) {
  const pid_t child = fork();
  if (child == 0) {
    use(context);
    struct ibv_context* own = first_device();
    use(own);
    _exit(ibv_close_device(own));
  }
  use(context);
  return wait_for(child);
}

static int runs_threads(struct ibv_context* context) {
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, use_in_thread, context);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  return ibv_close_device(context);
}

static int runs_short_threads(struct ibv_context* context) {
  for (int i = 0; i < 300; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use_in_thread, context)) return 1;
    pthread_join(thread, NULL);
  }
  return 0;
}

static void ignore(int number) { (void)number; }

static void* use_interrupted(void* context) {
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
  return use_in_thread(context);
}

/* A timer interrupts each call of the kernel that takes long. The main thread takes no signal. */
static int is_interrupted(struct ibv_context* context) {
  const struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
  const struct itimerval often = {{0, 30}, {0, 30}}, never = {{0, 0}, {0, 0}};
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarms, NULL);
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 300; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use_interrupted, context)) return 1;
    pthread_join(thread, NULL);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  return 0;
}

/* Links no symbol of the library, like UCX and others. */
static int loads(int flags) {
  void* library = dlopen("libibverbs.so.1", flags);
  if (!library) return puts(dlerror()), 1;
  __typeof__(&ibv_open_device) open = (__typeof__(open))dlsym(library, "ibv_open_device");
  struct ibv_device** (*list_devices)(int*) =
      (struct ibv_device * *(*)(int*)) dlsym(library, "ibv_get_device_list");
  struct ibv_pd* (*alloc)(struct ibv_context*) =
      (struct ibv_pd * (*)(struct ibv_context*)) dlsym(library, "ibv_alloc_pd");
  struct ibv_device** list = list_devices(NULL);
  struct ibv_context* context = list && list[0] ? open(list[0]) : NULL;
  if (!context || !alloc(context)) return perror("dlsym"), 1;
  if (!dlvsym(library, "ibv_alloc_pd", "IBVERBS_1.0")) return puts("no old twin"), 1;
  return dlclose(library);
}

/* Calls functions of IBVERBS_1.0, as a program from before 2007. */
static int calls_old(void) {
  void* library = dlopen("libibverbs.so.1", RTLD_NOW);
#define OLD(name) dlvsym(library, "ibv_" name, "IBVERBS_1.0")
  void** (*list_devices)(int*) = (void** (*)(int*))OLD("get_device_list");
  void* (*open_device)(void*) = (void* (*)(void*))OLD("open_device");
  void* (*alloc_pd)(void*) = (void* (*)(void*))OLD("alloc_pd");
  int (*dealloc_pd)(void*) = (int (*)(void*))OLD("dealloc_pd");
  int (*close_device)(void*) = (int (*)(void*))OLD("close_device");
  if (!list_devices || !open_device || !alloc_pd || !dealloc_pd || !close_device) return 1;
  void** list = list_devices(NULL);
  /* The emulator lists no device here (docs/abi.md). */
  if (!list || !list[0]) return alloc_pd(NULL) != NULL;
  void* context = open_device(list[0]);
  void* pd = context ? alloc_pd(context) : NULL;
  return !pd || dealloc_pd(pd) || close_device(context);
}

static int names_a_long_host(void) {
  char name[401] = {0};
  memset(name, 'x', 400);
  void* library = dlopen("librdmacm.so.1", RTLD_NOW);
  int (*find)(const char*, const char*, const void*, void**) =
      (int (*)(const char*, const char*, const void*, void**))dlsym(library, "rdma_getaddrinfo");
  void* found = NULL;
  return find(name, "1", NULL, &found) == 0;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "linked";
  alarm(100);
  if (!strcmp(how, "dlopen")) return loads(RTLD_NOW | RTLD_LOCAL);
  if (!strcmp(how, "old")) return calls_old();
  if (!strcmp(how, "long_name")) return names_a_long_host();
  if (!strcmp(how, "provider")) {
    /* RTLD_NOW binds the provider's names of IBVERBS_PRIVATE_34 at once. */
    void* provider = dlopen("libmlx5.so.1", RTLD_NOW);
    if (!provider) return puts(dlerror()), 77;
    return use(first_device()), 0;
  }
  struct ibv_context* context = first_device();
  use(context);
  if (!strcmp(how, "fork")) return forks(context);
  if (!strcmp(how, "threads")) return runs_threads(context);
  if (!strcmp(how, "short_threads")) return runs_short_threads(context);
  if (!strcmp(how, "interrupted")) return is_interrupted(context);
  if (!strcmp(how, "vfork")) {
    const pid_t child = vfork();
    if (child == 0) execl("/proc/self/exe", argv[0], "linked", (char*)NULL), _exit(1);
    return use(context), wait_for(child);
  }
  if (!strcmp(how, "exec")) return execl("/proc/self/exe", argv[0], "linked", (char*)NULL);
  if (!strcmp(how, "kill")) return raise(SIGKILL);
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "blocked")) {
    struct ibv_async_event event;
    puts("blocked"), fflush(stdout);
    return ibv_get_async_event(context, &event);
  }
  if (!strcmp(how, "signal")) {
    late_context = context;
    signal(SIGUSR1, in_handler);
    for (int i = 0; i < 10; i++) raise(SIGUSR1);
    return late_context = NULL, 0;
  }
  if (!strcmp(how, "destructor")) late_context = context;
  if (!strcmp(how, "closefrom")) {
    closefrom(3);
    for (int i = 0; i < 2000; i++) ibv_get_device_name(context->device);
    return 0;
  }
  return 0;
}
