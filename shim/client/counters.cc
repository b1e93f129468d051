#include "shim/client/counters.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "shim/client/client.h"
#include "shim/client/embedded.h"
#include "shim/client/file_id.h"
#include "shim/client/race_detector.h"
#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

constexpr size_t kMaxDescriptors = size_t{1} << 20;  // limits descriptor numbers, and so the table
constexpr uint64_t kForGood = uint64_t{1} << 40;     // more than any program reads

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
// One entry per descriptor: the kernel's eventfd id from /proc/self/fdinfo plus one. 0: not one of
// our counters.
long* g_eventfd_ids = nullptr;
size_t g_room = 0;

// The inode of all eventfds, stored at the first counter. On a 64-bit system all eventfds have the
// same inode.
std::atomic<uint64_t> g_eventfd_inode{0};

// Returns the kernel's id of an eventfd. Returns -1 for another file, or without /proc.
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

// True when the program has closed descriptors that it did not open. A host then closes its ends,
// and the kernel may give the ids of the counters to new eventfds of the program.
std::atomic<bool> g_may_be_programs{false};

// Marks the file behind a counter: SIGIO in place of 0, which also means SIGIO (F_SETSIG of
// fcntl(2)). An eventfd of the program has no mark.
void Mark(int fd) { (void)syscall(SYS_fcntl, fd, F_SETSIG, SIGIO); }
bool IsMarked(int fd) { return syscall(SYS_fcntl, fd, F_GETSIG) == SIGIO; }

// Returns whether the counter that was registered for this number is still behind it. The caller
// must hold the lock.
bool IsRemembered(int fd, long id) {
  return id >= 0 && id + 1 == g_eventfd_ids[fd] && (!g_may_be_programs || IsMarked(fd));
}

// Returns false if the program has closed the counter and uses its number for a file other than an
// eventfd. Costs one fstat(2).
bool IsCounter(int fd) {
  const uint64_t inode = g_eventfd_inode.load(std::memory_order_relaxed);
  return inode == 0 || FileIdOf(fd).inode == inode;
}

bool HasRoomFor(size_t fd) {
  if (fd < g_room) return true;
  if (fd >= kMaxDescriptors) return false;
  size_t room = g_room == 0 ? 64 : g_room;
  while (room <= fd) room *= 2;
  auto* grown = static_cast<long*>(realloc(g_eventfd_ids, room * sizeof(long)));
  if (grown == nullptr) return false;
  memset(grown + g_room, 0, (room - g_room) * sizeof(long));
  g_eventfd_ids = grown;
  g_room = room;
  return true;
}

}  // namespace

void RememberCounter(int fd) {
  g_eventfd_inode = FileIdOf(fd).inode;
  const long id = EventfdId(fd);
  if (id < 0) return;
  pthread_mutex_lock(&g_mutex);
  Mark(fd);
  // Ids of eventfds begin at 0.
  if (HasRoomFor(static_cast<size_t>(fd))) g_eventfd_ids[fd] = id + 1;
  pthread_mutex_unlock(&g_mutex);
}

void CloseCounter(int fd) {
  pthread_mutex_lock(&g_mutex);
  const bool remembered = fd >= 0 && static_cast<size_t>(fd) < g_room && g_eventfd_ids[fd] != 0;
  const long id = remembered ? EventfdId(fd) : -1;
  const bool is_ours =
      id >= 0 ? IsRemembered(fd, id) : IsCounter(fd) && (!g_may_be_programs || IsMarked(fd));
  if (remembered) g_eventfd_ids[fd] = 0;
  pthread_mutex_unlock(&g_mutex);
  if (is_ours) close(fd);
}

bool RaiseCounter(int fd) {
  const int before = errno;
  const uint64_t one = 1;
  const bool is_raised =
      IsRaisable(fd) && syscall(SYS_write, fd, &one, sizeof one) == long{sizeof one};
  errno = before;
  return is_raised;
}

bool IsRaisable(int fd) {
  const int before = errno;
  const bool is_raisable = IsCounter(fd) && IsMarked(fd);
  errno = before;
  return is_raisable;
}

void FillCounters() {
  pthread_mutex_lock(&g_mutex);
  for (size_t fd = 0; fd < g_room; fd++) {
    if (g_eventfd_ids[fd] == 0) continue;
    const int number = static_cast<int>(fd);
    if (IsRemembered(number, EventfdId(number))) SysAddToEventfd(number, kForGood);
  }
  pthread_mutex_unlock(&g_mutex);
}

void DoubtCounters() { g_may_be_programs = true; }

void LockCountersForFork() { pthread_mutex_lock(&g_mutex); }
void UnlockCountersAfterFork() { pthread_mutex_unlock(&g_mutex); }

namespace {

struct Taken {
  int fd;
  uint64_t count = 0;
  int error = 0;
};
void PutBack(void* taken_by_read) {
  const Taken& taken = *static_cast<Taken*>(taken_by_read);
  if (taken.count > 0) SysAddToEventfd(taken.fd, taken.count);
}

// Takes one count, or waits for it. Returns an errno value. A cancellation point. read(2) may take
// the count of a thread that is cancelled meanwhile. Another thread gets the event then.
int TakeCount(int fd) {
  Taken taken{.fd = fd};
  pthread_cleanup_push(PutBack, &taken);
  if (read(fd, &taken.count, sizeof taken.count) != ssize_t{sizeof taken.count}) {
    taken.error = errno;
  }
  pthread_cleanup_pop(0);
  return taken.error;
}

}  // namespace
}  // namespace rdmaemu::client

extern "C" {

// A cancellation point, as read(2) is, because programs cancel threads that wait here. No lock is
// held.
int rdmaemu_client_wait(int counter_fd) {
  using namespace rdmaemu::client;
  if (!IsCounter(counter_fd)) return EBADF;
  JoinIfForked();
  if (const rdmaemu_embedded_host* const embedded = Embedded()) {
    const int error = embedded->wait(counter_fd);
    AcquireFromDevice();
    return error;
  }
  if (const int error = TakeCount(counter_fd); error != 0) return error;
  AcquireFromDevice();
  return HostIsGone() ? EIO : 0;
}

int rdmaemu_client_host_is_gone() { return rdmaemu::client::HostIsGone() ? 1 : 0; }

void rdmaemu_client_put_back(int counter_fd) {
  using namespace rdmaemu::client;
  if (IsCounter(counter_fd)) SysAddToEventfd(counter_fd, 1);
}

void rdmaemu_client_close_counter(int counter_fd) { rdmaemu::client::CloseCounter(counter_fd); }
}
