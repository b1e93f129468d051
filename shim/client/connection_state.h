// The state of the process's one connection to its host, and what its files share: connection.cc
// makes calls, and joining.cc connects.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "emulator/abi/calls.h"
#include "emulator/abi/process_page.h"
#include "shim/client/cancellation.h"
#include "shim/client/file_id.h"
#include "shim/client/launch.h"
#include "shim/client/page_calls.h"
#include "shim/client/segments.h"

struct rdmaemu_embedded_host;

namespace rdmaemu::client {

struct Connection {
  // Serialises calls by the socket, and changes of the connection. A thread holds it while a host
  // answers, so fork() does not wait for it. A forked child starts with a new mutex, whatever its
  // parent's threads were doing.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  // Taken after `mutex`, for a few instructions. Code holds both to change state that a forked
  // child must find consistent.
  pthread_mutex_t fork_mutex = PTHREAD_MUTEX_INITIALIZER;

  int socket = -1;
  FileId socket_id;  // of `socket`, or of `inherited_socket`
  FileId doorbell_id;
  bool watched = false;        // a thread waits for the end of `socket`
  bool has_waited_on = false;  // some descriptor needs the thread; also set in a forked child
  // The parent's socket. A forked child keeps it until the child has its own. While it is open,
  // objects that the parent created before the fork live, even after the parent has ended.
  int inherited_socket = -1;
  std::atomic<uint32_t> generation{0};
  HostPlace place{};
  uint8_t token[16] = {};
  uint32_t host_pid = 0;
  uint32_t process = 0;                 // HelloOut::process
  ProcessPage* process_page = nullptr;  // the page of this process
  uint32_t this_fork = 0;               // number of the fork in progress
  // In a forked child without its own connection: its parent process, and the number of the
  // parent's fork.
  uint32_t parent = 0, fork = 0;
  std::atomic<bool> gone{false};
  std::atomic<bool> must_rejoin{false};

  CallPages pages;  // without them, all calls use the socket
  // EnsureConnected has succeeded, so calls on pages need not take `mutex`.
  std::atomic<bool> is_settled{false};

  std::atomic<int> doorbell_fd{-1};
  Segments segments;
};
extern Connection g_connection;

// How many locks of calls this thread waits for, or holds. For signal handlers.
extern __thread volatile int t_calls __attribute__((tls_model("initial-exec")));

inline void LockConnection() {
  t_calls = t_calls + 1;
  pthread_mutex_lock(&g_connection.mutex);
}
inline void UnlockConnection() {
  pthread_mutex_unlock(&g_connection.mutex);
  t_calls = t_calls - 1;
}

class ForkMutexLock {
 public:
  ForkMutexLock() { pthread_mutex_lock(&g_connection.fork_mutex); }
  ~ForkMutexLock() { pthread_mutex_unlock(&g_connection.fork_mutex); }
  ForkMutexLock(const ForkMutexLock&) = delete;
  ForkMutexLock& operator=(const ForkMutexLock&) = delete;

 private:
  CancellationHeld held_;  // held as long as the lock
};

// Returns true if the connection's descriptors are open and their numbers not reused by the
// program. A child that has not rejoined has no socket.
bool OwnsDescriptors();
// Returns true if the host has ended or is unreachable.
bool HasEnded();
// Records that the host has ended, says so, and wakes up all threads that wait for it.
void MarkGone();

// joining.cc. Both return 0 or a positive errno. The caller holds `mutex`.
// Connects first if needed.
int EnsureConnected();
// Starts the thread that wakes up threads that wait on counters when the host ends.
int EnsureWatched();

// joining.cc: returns the address of the span, and maps its segment if needed. Returns nullptr and
// errno on failure. The caller holds `mutex`.
std::byte* MapSpanLocked(const SharedSpan& span, int socket);
// joining.cc: sends a Hello to a host inside this process. Returns 0 or a positive errno.
int GreetEmbedded(const rdmaemu_embedded_host& host, uint32_t number);
// joining.cc: unmaps the segments of the previous host, whose objects are invalid.
void ForgetSegments();
void RegisterForkHandlersOnce();

}  // namespace rdmaemu::client
