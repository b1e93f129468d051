#include "shim/client/counters.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/client/client.h"
#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

constexpr size_t kMaxCounters = 65536;
constexpr uint64_t kForGood = uint64_t{1} << 40;  // more than anybody reads

struct Counter {
  int fd;
  long eventfd_id;  // the kernel's own number, from /proc/self/fdinfo
};

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
Counter* g_counters = nullptr;
size_t g_count = 0, g_room = 0;

// The number by which the kernel tells eventfds apart; -1 when the descriptor is not one (or /proc
// is missing).
long EventfdId(int fd) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (file < 0) return -1;
  const long got = syscall(SYS_read, file, text, sizeof text - 1);
  SysClose(file);
  if (got <= 0) return -1;
  text[got] = '\0';
  const char* id = strstr(text, "eventfd-id:");
  return id == nullptr ? -1 : strtol(id + strlen("eventfd-id:"), nullptr, 10);
}

bool Grow() {
  if (g_count < g_room) return true;
  if (g_room >= kMaxCounters) return false;
  const size_t room = g_room == 0 ? 16 : g_room * 2;
  auto* grown = static_cast<Counter*>(realloc(g_counters, room * sizeof(Counter)));
  if (grown == nullptr) return false;
  g_counters = grown;
  g_room = room;
  return true;
}

}  // namespace

void RememberCounter(int fd) {
  const long id = EventfdId(fd);
  if (id < 0) return;
  pthread_mutex_lock(&g_mutex);
  size_t i = 0;
  while (i < g_count && g_counters[i].fd != fd) i++;
  if (i < g_count) {
    g_counters[i].eventfd_id = id;
  } else if (Grow()) {
    g_counters[g_count++] = {fd, id};
  }
  pthread_mutex_unlock(&g_mutex);
}

void CloseCounter(int fd) {
  pthread_mutex_lock(&g_mutex);
  for (size_t i = 0; i < g_count; i++) {
    if (g_counters[i].fd == fd) {
      g_counters[i] = g_counters[--g_count];
      break;
    }
  }
  SysClose(fd);
  pthread_mutex_unlock(&g_mutex);
}

void FillCounters() {
  pthread_mutex_lock(&g_mutex);
  for (size_t i = 0; i < g_count; i++) {
    if (EventfdId(g_counters[i].fd) == g_counters[i].eventfd_id) {
      SysAddToEventfd(g_counters[i].fd, kForGood);
    }
  }
  pthread_mutex_unlock(&g_mutex);
}

void LockCountersForFork() { pthread_mutex_lock(&g_mutex); }
void UnlockCountersAfterFork() { pthread_mutex_unlock(&g_mutex); }
void ResetCountersInChild() { pthread_mutex_init(&g_mutex, nullptr); }

}  // namespace rdmaemu::client

extern "C" {

// A cancellation point like the read(2) that it is: programs cancel threads that wait here. No lock
// is held and nothing is on the stack that would have to be cleaned up.
int rdmaemu_client_wait(int counter_fd) {
  uint64_t one;
  if (read(counter_fd, &one, sizeof one) != static_cast<ssize_t>(sizeof one)) return errno;
  return rdmaemu::client::HostIsGone() ? EIO : 0;
}

void rdmaemu_client_put_back(int counter_fd) { rdmaemu::client::SysAddToEventfd(counter_fd, 1); }
}
