// How a process gets its connection to a host: the first one, a forked child's own, and that to a
// host inside the process.

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>

#include "emulator/abi/process_page.h"
#include "emulator/abi/ring.h"
#include "shim/client/call_sites.h"
#include "shim/client/client.h"
#include "shim/client/connection_state.h"
#include "shim/client/counters.h"
#include "shim/client/embedded.h"
#include "shim/client/file_id.h"
#include "shim/client/fork_lock.h"
#include "shim/client/launch.h"
#include "shim/client/messages.h"
#include "shim/client/own_doorbells.h"
#include "shim/client/own_pid.h"
#include "shim/client/page_calls.h"
#include "shim/client/segments.h"
#include "shim/client/system.h"
#include "shim/client/watcher.h"

extern char* program_invocation_short_name;

namespace rdmaemu::client {
namespace {

constexpr int kStartAttempts = 3;  // a host may end between its discovery and the Hello

void ShareCallPages(int socket) {
  const Nothing in{};
  Buffer nothing{nullptr, 0, 0};
  int fd = -1;
  if (Exchange(socket, {static_cast<uint32_t>(CallOp::kShareCallPage), sizeof in}, &in, nothing,
               &fd, 1) != 0) {
    return;
  }
  g_connection.pages.Map(fd);
  SysClose(fd);
}

int Connect(const HostPlace& place) {
  const int fd = SysAboveStandard(SysSocket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC));
  if (fd < 0) return -1;
  int result;
  do {
    result = SysConnect(fd, reinterpret_cast<const sockaddr*>(&place.socket), sizeof place.socket);
  } while (result != 0 && errno == EINTR);
  ucred peer{};
  if (result == 0 && SysPeerCredentials(fd, &peer) == 0) {
    if (peer.uid == geteuid()) return fd;
    errno = EACCES;
  }
  const int error = errno;
  SysClose(fd);
  errno = error;
  return -1;
}

// Sends a Hello. `token` names the group that the process joins. Zero: a new group.
int Greet(int socket, const uint8_t (&token)[16], HelloOut& out, int& doorbell_fd) {
  HelloIn in{};
  in.version = kCallVersion;
  in.pid = static_cast<uint32_t>(getpid());
  memcpy(in.group_token, token, sizeof in.group_token);
  in.parent = g_connection.parent;
  in.fork = g_connection.fork;
  snprintf(in.program, sizeof in.program, "%s", program_invocation_short_name);
  Buffer buffer{&out, sizeof out, 0};
  const int error = Exchange(socket, {static_cast<uint32_t>(CallOp::kHello), sizeof in}, &in,
                             buffer, &doorbell_fd, 1);
  if (error == 0 && buffer.filled != sizeof out) {
    SysClose(doorbell_fd);
    return EPROTO;
  }
  return error;
}

int MapSegment(uint32_t id, MappedSegment& out, int socket) {
  const MapSegmentIn in{id, 0};
  MapSegmentOut answer{};
  Buffer buffer{&answer, sizeof answer, 0};
  int fd = -1;
  constexpr auto kOp = static_cast<uint32_t>(CallOp::kMapSegment);
  const rdmaemu_embedded_host* const embedded = Embedded();
  const int error = embedded == nullptr ? Exchange(socket, {kOp, sizeof in}, &in, buffer, &fd, 1)
                                        : embedded->call(kOp, &in, sizeof in, &answer,
                                                         sizeof answer, &buffer.filled, &fd, 1);
  if (error != 0) return error;
  if (buffer.filled != sizeof answer) answer.length = 0;
  return MapFile(id, answer, fd, out);
}

int MapDoorbells(int socket, const HelloOut& hello, uint32_t number = 0) {
  if (hello.doorbells.length < sizeof(DoorbellPage)) return EPROTO;
  std::byte* const page = MapSpanLocked(hello.doorbells, socket);
  if (page == nullptr) return errno;
  g_doorbells[number] = reinterpret_cast<DoorbellPage*>(page);
  return 0;
}

// Applies the reply to Hello: permits the host to access our memory, and maps the shared pages.
// After success (0), `socket` is the connection and an inherited socket is closed.
int Settle(int socket, const HelloOut& hello, int doorbell_fd) {
  Connection& c = g_connection;
  if (hello.version != kCallVersion || hello.process_page.length < sizeof(ProcessPage)) {
    return EPROTO;
  }
  // Fails without Yama, where it is not needed.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(hello.host_pid), 0, 0, 0);
  const int error = MapDoorbells(socket, hello);
  if (error != 0) return error;
  std::byte* const process_page = MapSpanLocked(hello.process_page, socket);
  if (process_page == nullptr) return errno;
  ShareCallPages(socket);

  ForkMutexLock lock;
  if (c.inherited_socket >= 0 && FileIdOf(c.inherited_socket) == c.socket_id) {
    SysClose(c.inherited_socket);
  }
  c.inherited_socket = -1;
  c.socket = socket;
  c.socket_id = FileIdOf(socket);
  c.doorbell_fd = doorbell_fd;
  c.doorbell_id = FileIdOf(doorbell_fd);
  memcpy(c.token, hello.group_token, sizeof c.token);
  c.host_pid = hello.host_pid;
  OwnConnection();
  c.process = hello.process;
  c.process_page = reinterpret_cast<ProcessPage*>(process_page);
  c.must_rejoin = false;
  return 0;
}

int GreetAndSettle(int socket, const uint8_t (&token)[16]) {
  HelloOut hello{};
  int doorbell_fd = -1;
  int error = Greet(socket, token, hello, doorbell_fd);
  if (error != 0) return error;
  error = Settle(socket, hello, doorbell_fd);
  if (error != 0) SysClose(doorbell_fd);
  return error;
}

constexpr uint8_t kNewGroup[16] = {};

// Connects a forked child to its parent's host. A child never uses another host.
int Rejoin() {
  Connection& c = g_connection;
  const int socket = Connect(c.place);
  int error = socket >= 0 ? GreetAndSettle(socket, c.token) : errno;
  // The child's ancestors have ended and it has closed the inherited socket, so it starts a new
  // group.
  if (socket >= 0 && error == EACCES) error = GreetAndSettle(socket, kNewGroup);
  if (error == 0) return 0;
  if (socket >= 0) SysClose(socket);
  // These errors mean that the host has ended, so the child cannot join again. Other errors (no
  // free descriptor) may be temporary. The counters also belong to the parent, so they are not
  // filled.
  if (error == ENOENT || error == ECONNREFUSED || error == EACCES || error == EIO) {
    Complain(Complaint::kUnreachable,
             "this forked process (%d) cannot reach host '%s' at %s (%s), so its calls fail with "
             "EIO; the host has ended, or chroot(2), setuid(2) or a mount hides it: use RDMA in a "
             "process that does none of these",
             static_cast<int>(getpid()), c.place.name, c.place.socket.sun_path, strerror(error));
    c.gone = true;
    c.must_rejoin = false;
  }
  return EIO;
}

// fork() waits for no host and for no call of another thread. The child joins its parent's group
// when it first uses the library. From the count of forks the host computes which objects the child
// inherited.
void PrepareFork() {
  Connection& c = g_connection;
  pthread_mutex_lock(&c.fork_mutex);
  LockCountersForFork();
  if (c.process_page != nullptr) {
    c.this_fork = std::atomic_ref(c.process_page->forks).fetch_add(1) + 1;
  }
}
void AfterForkInParent() {
  UnlockCountersAfterFork();
  pthread_mutex_unlock(&g_connection.fork_mutex);
}
void AfterForkInChild() {
  Connection& c = g_connection;
  UnlockCountersAfterFork();
  pthread_mutex_init(&c.mutex, nullptr);
  c.is_settled = false;
  t_calls = 0;
  ResetCallSitesAfterFork();
  pthread_mutex_unlock(&c.fork_mutex);  // PrepareFork locked it
  g_fork_generation.fetch_add(1);
  // A host inside the parent belongs to the parent. Its queues are shared, and the child's copy of
  // its state is unusable.
  if (g_embedded.exchange(nullptr) != nullptr) c.gone = true;
  c.pages.Init();
  c.watched = false;
  if (c.socket < 0) return;
  // Do not close the parent's doorbell. Its number may already belong to an eventfd of the program,
  // which looks the same.
  c.doorbell_fd = -1;
  c.doorbell_id = {};
  c.parent = c.process;
  c.fork = c.this_fork;
  c.process_page = nullptr;
  c.inherited_socket = c.socket;
  c.socket = -1;
  c.must_rejoin = true;
}

void RegisterForkHandlers() {
  g_connection.pages.Init();
  pthread_atfork(PrepareFork, AfterForkInParent, AfterForkInChild);
}

int FirstConnect() {
  Connection& c = g_connection;
  RegisterForkHandlersOnce();
  if (FindHostPlace(c.place) != 0) return ENODEV;
  int error = ENODEV;
  for (int attempt = 0; attempt < kStartAttempts; attempt++) {
    const int socket = Connect(c.place);
    if (socket < 0) {
      error = errno;
      if (error != ENOENT && error != ECONNREFUSED) break;
      if (!StartHost(c.place)) return ENODEV;
      continue;
    }
    error = GreetAndSettle(socket, kNewGroup);
    if (error == 0) return 0;
    SysClose(socket);
    if (error != EIO) break;
  }
  if (error == EPROTO) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' runs another version of rdmaemu; end it with `rdmaemu "
             "stop %s` and try again",
             c.place.name, c.place.name);
  } else if (error == EMFILE) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: this process has reached its limit of descriptors, and the "
             "connection to host '%s' needs some; raise the limit (ulimit -n)",
             c.place.name);
  } else {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' at %s does not answer (%s); end it with `rdmaemu stop %s` "
             "and try again",
             c.place.name, c.place.socket.sun_path, strerror(error), c.place.name);
  }
  return ENODEV;
}

}  // namespace

int EnsureWatched() {
  Connection& c = g_connection;
  if (c.watched) return 0;
  const int error = StartWatcher(c.socket, MarkGone);
  c.watched = error == 0;
  if (error == 0) c.has_waited_on = true;
  return error;
}

std::byte* MapSpanLocked(const SharedSpan& span, int socket) {
  Connection& c = g_connection;
  bool known;
  std::byte* bytes;
  {
    ForkMutexLock lock;
    bytes = c.segments.Find(span, known);
  }
  if (known) return bytes;
  MappedSegment segment;
  if (const int error = MapSegment(span.segment, segment, socket); error != 0) {
    errno = error;
    return nullptr;
  }
  ForkMutexLock lock;
  if (c.segments.Add(segment)) return Place(span, segment);
  munmap(segment.bytes, segment.length);
  errno = ENOMEM;
  return nullptr;
}

void RegisterForkHandlersOnce() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, RegisterForkHandlers);
}

// Sends a Hello to a host inside this process. Such a host needs a ring for each post, because it
// never scans by itself.
int GreetEmbedded(const rdmaemu_embedded_host& host, uint32_t number) {
  HelloIn in{};
  in.version = kCallVersion;
  in.pid = static_cast<uint32_t>(getpid());
  snprintf(in.program, sizeof in.program, "%s", program_invocation_short_name);
  HelloOut hello{};
  uint32_t filled = 0;
  const int error = host.call(static_cast<uint32_t>(CallOp::kHello), &in, sizeof in, &hello,
                              sizeof hello, &filled, nullptr, 0);
  if (error != 0) return error;
  if (filled != sizeof hello || hello.version != kCallVersion) return EPROTO;
  return MapDoorbells(-1, hello, number);
}

void ForgetSegments() {
  Connection& c = g_connection;
  for (std::atomic<DoorbellPage*>& page : g_doorbells) page = nullptr;
  ForkMutexLock lock;
  c.segments.UnmapAll();
}

int EnsureConnected() {
  Connection& c = g_connection;
  if (c.gone.load()) return EIO;
  if (Embedded() != nullptr) return 0;
  int error = 0;
  if (c.socket < 0) error = c.must_rejoin.load() ? Rejoin() : FirstConnect();
  if (error == 0 && c.has_waited_on) error = EnsureWatched();
  c.is_settled = error == 0 && !c.gone.load();
  return error;
}

}  // namespace rdmaemu::client
