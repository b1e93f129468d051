#include "shim/client/watcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/system.h"
#include "shim/client/valgrind.h"

namespace rdmaemu::client {
namespace {

constexpr size_t kOwnStackBytes = 65536;

struct Watched {
  int socket;
  int stop_fd;  // readable: the thread must end; -1: it never ends
  void (*ended)();
};

// Valgrind reports the memory of a thread as lost if the thread still runs when the process ends.
// Under Valgrind the thread therefore ends first.
struct Ending {
  pid_t process;  // process that has the thread; its forked children do not have it
  pthread_t thread;
  int stop_fd;
};
Ending g_ending = {0, {}, -1};

void* Watch(void* argument) {
  const Watched watched = *static_cast<Watched*>(argument);
  free(argument);
  pollfd polls[2] = {{watched.socket, POLLRDHUP, 0}, {watched.stop_fd, POLLIN, 0}};
  while (SysPoll(polls, 2) < 0 && errno == EINTR) {
  }
  if (polls[1].revents == 0) watched.ended();
  return nullptr;
}

__attribute__((destructor)) void EndWatcher() {
  if (g_ending.process != getpid()) return;
  SysAddToEventfd(g_ending.stop_fd, 1);
  pthread_join(g_ending.thread, nullptr);
}

// The C library allocates a thread's copy of thread-local storage on the thread's stack. Only
// glibc's private function returns its size. Java and Rust use that function as well.
size_t StackBytes(const pthread_attr_t& attributes) {
  using MinStack = size_t(const pthread_attr_t*);
  auto* const min_stack =
      reinterpret_cast<MinStack*>(dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));
  const long least = sysconf(_SC_THREAD_STACK_MIN);
  const size_t needed = min_stack != nullptr ? min_stack(&attributes) : 0;
  return std::max(needed, least > 0 ? static_cast<size_t>(least) : 0) + kOwnStackBytes;
}

int StartThread(pthread_attr_t& attributes, Watched* watched) {
  const bool ends = watched->stop_fd >= 0;
  if (!ends) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigfillset(&all);
  pthread_attr_setsigmask_np(&attributes, &all);
  const int stop_fd = watched->stop_fd;
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, Watch, watched);
  if (error == 0 && ends) g_ending = {getpid(), thread, stop_fd};
  return error;
}

}  // namespace

int StartWatcher(int socket, void (*ended)()) {
  auto* const watched = static_cast<Watched*>(malloc(sizeof(Watched)));
  if (watched == nullptr) return ENOMEM;
  *watched = {socket, IsUnderValgrind() ? eventfd(0, EFD_CLOEXEC) : -1, ended};
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error == 0) {
    pthread_attr_setstacksize(&attributes, StackBytes(attributes));
    error = StartThread(attributes, watched);
    pthread_attr_destroy(&attributes);
  }
  // EINVAL: the stack is too small after all. The system's default size is enough for any thread.
  if (error == EINVAL && pthread_attr_init(&attributes) == 0) {
    error = StartThread(attributes, watched);
    pthread_attr_destroy(&attributes);
  }
  if (error != 0) {
    if (watched->stop_fd >= 0) SysClose(watched->stop_fd);
    free(watched);
  }
  return error;
}

}  // namespace rdmaemu::client
