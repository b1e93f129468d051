// The connection: calls, shared segments, doorbells, fork, and the thread that sees the host die.

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>

#include "emulator/base/id_space.h"
#include "emulator/verbs/ring.h"
#include "shim/client/client.h"
#include "shim/client/counters.h"
#include "shim/client/embedded.h"
#include "shim/client/file_id.h"
#include "shim/client/fork_lock.h"
#include "shim/client/launch.h"
#include "shim/client/messages.h"
#include "shim/client/page_calls.h"
#include "shim/client/race_detector.h"
#include "shim/client/segments.h"
#include "shim/client/system.h"
#include "shim/client/watcher.h"

extern char* program_invocation_short_name;

namespace rdmaemu::client {

std::atomic<uint32_t> g_fork_generation{1};
const char g_device_order = 0;
std::atomic<const rdmaemu_embedded_host*> g_embedded{nullptr};
// Of the hosts inside this process, by their numbers: those that have ended.
std::atomic<uint32_t> g_ended_hosts{0};
static_assert(IdSpace::kMaxParts <= 32);

namespace {

constexpr int kStartAttempts = 3;  // a host may end itself between our finding and our greeting it
constexpr time_t kJoinLimitSeconds = 1;  // a fork never waits longer for its child

struct Connection {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // one call at a time
  int socket = -1;
  FileId socket_id;  // of `socket`, or of `inherited_socket`
  FileId doorbell_id;
  bool watched = false;        // a thread waits for the end of `socket`
  bool has_waited_on = false;  // descriptors that need the thread, also in a forked child
  // The parent's socket, kept by a forked child until it has its own: as long as it is open the
  // host does not take the group for gone, even when the parent has ended.
  int inherited_socket = -1;
  bool greeted = false;  // place and token are set
  std::atomic<uint32_t> generation{0};
  HostPlace place{};
  uint8_t token[16] = {};
  uint32_t host_pid = 0;
  std::atomic<bool> gone{false};
  std::atomic<bool> must_rejoin{false};

  // This process's own; nullptr: calls go by the socket.
  std::atomic<CallPage*> page{nullptr};

  // Of a host process the first; of hosts inside this process one each.
  std::atomic<DoorbellPage*> doorbells[IdSpace::kMaxParts] = {};
  std::atomic<int> doorbell_fd{-1};

  pthread_mutex_t segments_mutex = PTHREAD_MUTEX_INITIALIZER;  // taken before `mutex`
  Segments segments;
};
Connection g_connection;

// The program has not closed the connection's descriptors: they are not files of its own. A child
// that has not rejoined has no socket.
bool OwnsDescriptors() {
  const Connection& c = g_connection;
  return (c.socket < 0 || FileIdOf(c.socket) == c.socket_id) &&
         FileIdOf(c.doorbell_fd) == c.doorbell_id;
}

void MarkGone() {
  if (g_connection.gone.exchange(true)) return;
  if (OwnsDescriptors()) {
    Complain(Complaint::kGone,
             "host '%s' (process %u) has gone, and its devices with it; look for the reason with "
             "`rdmaemu hosts`, and start this program again",
             g_connection.place.name, g_connection.host_pid);
  } else {
    Complain(Complaint::kGone,
             "this program has closed descriptors that it did not open (closefrom?), and with them "
             "the connection to host '%s': all calls fail with EIO; open devices after that",
             g_connection.place.name);
  }
  FillCounters();
  if (CallPage* const page = g_connection.page.load()) WakeCaller(*page);
}

// A process without a page calls by its socket, and does well.
CallPage* ShareCallPage(int socket) {
  const Nothing in{};
  Buffer nothing{nullptr, 0, 0};
  int fd = -1;
  if (Exchange(socket, {static_cast<uint32_t>(CallOp::kShareCallPage), sizeof in}, &in, nothing,
               &fd, 1) != 0) {
    return nullptr;
  }
  CallPage* const page = MapCallPage(fd);
  SysClose(fd);
  return page;
}

// ---- connecting

int Connect(const HostPlace& place) {
  const int fd = SysSocket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC);
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

int Greet(int socket, HelloOut& out, int& doorbell_fd) {
  HelloIn in{};
  in.version = kCallVersion;
  in.pid = static_cast<uint32_t>(getpid());
  memcpy(in.group_token, g_connection.token, sizeof in.group_token);
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

// True when the host has ended, or cannot be reached any more.
bool HasEnded() { return !OwnsDescriptors() || SysHasHungUp(g_connection.socket); }

// Wakes a host that sleeps; false when it cannot be reached any more.
bool WakeHost() {
  if (!OwnsDescriptors()) {
    MarkGone();
    return false;
  }
  SysAddToEventfd(g_connection.doorbell_fd, 1);
  return true;
}

// Threads that wait on counters learn of the host's end from another thread.
int EnsureWatched() {
  Connection& c = g_connection;
  if (c.watched) return 0;
  const int error = StartWatcher(c.socket, MarkGone);
  c.watched = error == 0;
  if (error == 0) c.has_waited_on = true;
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

// The doorbells of the host that has the object.
DoorbellPage* DoorbellsOf(uint32_t handle) {
  const uint32_t number = Embedded() == nullptr ? 0 : IdSpace::PartOf(handle);
  return g_connection.doorbells[number].load(std::memory_order_relaxed);
}

int MapDoorbells(int socket, const HelloOut& hello, uint32_t number = 0) {
  if (hello.doorbells.length < sizeof(DoorbellPage)) return EPROTO;
  MappedSegment segment;
  const int error = MapSegment(hello.doorbells.segment, segment, socket);
  if (error != 0) return error;
  // `mutex` alone is held: nobody maps segments before the first greeting is over.
  if (!g_connection.segments.Add(segment)) return ENOMEM;
  std::byte* page = Place(hello.doorbells, segment);
  if (page == nullptr) return EPROTO;
  g_connection.doorbells[number] = reinterpret_cast<DoorbellPage*>(page);
  return 0;
}

// What Hello brought: permission for the host to reach our memory, and the doorbells.
int Settle(int socket, const HelloOut& hello, int doorbell_fd) {
  Connection& c = g_connection;
  if (hello.version != kCallVersion) return EPROTO;
  c.host_pid = hello.host_pid;
  // Fails where Yama is not there; then it is not needed either.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(hello.host_pid), 0, 0, 0);
  memcpy(c.token, hello.group_token, sizeof c.token);
  if (c.doorbells[0].load() == nullptr) {
    const int error = MapDoorbells(socket, hello);
    if (error != 0) return error;
  }
  if (c.doorbell_fd.load() < 0 || FileIdOf(c.doorbell_fd) != c.doorbell_id) {
    c.doorbell_fd = doorbell_fd;
    c.doorbell_id = FileIdOf(doorbell_fd);
  } else {
    // A child's other threads may be writing to the number at this moment: it stays the same.
    SysDup3(doorbell_fd, c.doorbell_fd, O_CLOEXEC);
    SysClose(doorbell_fd);
  }
  c.page = ShareCallPage(socket);
  return 0;
}

int GreetAndSettle(int socket) {
  HelloOut hello{};
  int doorbell_fd = -1;
  int error = Greet(socket, hello, doorbell_fd);
  if (error == 0) error = Settle(socket, hello, doorbell_fd);
  return error;
}

// The socket is the connection from now on; an inherited one has served its purpose.
void Keep(int socket) {
  Connection& c = g_connection;
  if (c.inherited_socket >= 0 && FileIdOf(c.inherited_socket) == c.socket_id) {
    SysClose(c.inherited_socket);
  }
  c.inherited_socket = -1;
  c.socket_id = FileIdOf(socket);
  c.socket = socket;
}

// A forked child: its parent's host or none.
int Rejoin() {
  Connection& c = g_connection;
  const int socket = Connect(c.place);
  int error = socket >= 0 ? GreetAndSettle(socket) : errno;
  if (error != 0) {
    if (socket >= 0) SysClose(socket);
    // Nobody listens, or the group has ended: there is nothing to come back to. Anything else
    // (no descriptor left, say) may pass. The counters are the parent's too and stay as they are.
    if (error == ENOENT || error == ECONNREFUSED || error == EACCES || error == EIO) {
      c.gone = true;
      c.must_rejoin = false;
    }
    return EIO;
  }
  Keep(socket);
  c.must_rejoin = false;
  return 0;
}

// A host takes a process's objects away when it ends, unless a child has joined the group by then,
// and daemon(3) ends the parent at once: so fork returns in the parent when the child has joined.
int g_join_pipe[2] = {-1, -1};

void PrepareFork() {
  Connection& c = g_connection;
  pthread_mutex_lock(&c.segments_mutex);
  pthread_mutex_lock(&c.mutex);
  LockCountersForFork();
  g_join_pipe[0] = g_join_pipe[1] = -1;
  const bool joins = (c.socket >= 0 || c.must_rejoin.load()) && !c.gone.load();
  if (joins && pipe2(g_join_pipe, O_CLOEXEC) != 0) g_join_pipe[0] = g_join_pipe[1] = -1;
}
void AfterForkInParent() {
  const int saved_errno = errno;
  const int joined = g_join_pipe[0];
  if (joined >= 0) SysClose(g_join_pipe[1]);
  UnlockCountersAfterFork();
  pthread_mutex_unlock(&g_connection.mutex);
  pthread_mutex_unlock(&g_connection.segments_mutex);
  if (joined >= 0) {
    pollfd poll{joined, POLLIN, 0};  // hangs up when the child has joined, or ended
    const timespec limit{kJoinLimitSeconds, 0};
    syscall(SYS_ppoll, &poll, 1, &limit, nullptr, 0);
    SysClose(joined);
  }
  errno = saved_errno;
}
void AfterForkInChild() {
  Connection& c = g_connection;
  ResetCountersInChild();
  pthread_mutex_init(&c.mutex, nullptr);
  pthread_mutex_init(&c.segments_mutex, nullptr);
  g_fork_generation.fetch_add(1);
  // A host inside the parent is the parent's: its queues are shared, its state is a dead copy.
  if (g_embedded.exchange(nullptr) != nullptr) c.gone = true;
  // The parent's.
  if (CallPage* const page = c.page.exchange(nullptr)) munmap(page, sizeof *page);
  if (c.socket >= 0) {
    c.inherited_socket = c.socket;
    c.socket = -1;
    c.watched = false;
    c.must_rejoin = true;
  }
  if (g_join_pipe[0] < 0) return;
  // When this fails the first call tries again.
  if (c.must_rejoin.load()) Rejoin();
  SysClose(g_join_pipe[0]);
  SysClose(g_join_pipe[1]);
}

void RegisterForkHandlers() { pthread_atfork(PrepareFork, AfterForkInParent, AfterForkInChild); }

void RegisterForkHandlersOnce() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, RegisterForkHandlers);
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
    error = GreetAndSettle(socket);
    if (error == 0) {
      Keep(socket);
      c.greeted = true;
      return 0;
    }
    SysClose(socket);
    if (error != EIO) break;
  }
  if (error == EPROTO) {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' is of another version of rdmaemu; end it with `rdmaemu "
             "stop %s` and try again",
             c.place.name, c.place.name);
  } else {
    Complain(Complaint::kUnreachable,
             "no RDMA devices: host '%s' at %s does not answer (%s); end it with `rdmaemu stop %s` "
             "and try again",
             c.place.name, c.place.socket.sun_path, strerror(error), c.place.name);
  }
  return ENODEV;
}

// The greeting of a host inside this process, which wants a ring each time: it never looks itself.
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

// Mappings of the host before: of objects that are not to be used any more.
void ForgetSegments() {
  Connection& c = g_connection;
  for (std::atomic<DoorbellPage*>& page : c.doorbells) page = nullptr;
  c.segments.UnmapAll();
}

int EnsureConnected() {
  Connection& c = g_connection;
  if (c.gone.load()) return EIO;
  if (Embedded() != nullptr) return 0;
  int error = 0;
  if (c.socket < 0) error = c.must_rejoin.load() ? Rejoin() : FirstConnect();
  return error == 0 && c.has_waited_on ? EnsureWatched() : error;
}

// A doorbell or a wait in a child that made no call yet: the host must know whose memory it is.
void RejoinIfForked() {
  if (!g_connection.must_rejoin.load(std::memory_order_relaxed)) return;
  pthread_mutex_lock(&g_connection.mutex);
  EnsureConnected();
  pthread_mutex_unlock(&g_connection.mutex);
}

bool BringsCounter(uint32_t op) {
  return op == static_cast<uint32_t>(CallOp::kOpenDevice) ||
         op == static_cast<uint32_t>(CallOp::kCreateChannel) ||
         op == static_cast<uint32_t>(CallOp::kCmCreateChannel);
}

int CallHostProcess(CallHeader header, const void* in, Buffer& out, int* descriptors,
                    uint32_t descriptor_count) {
  Connection& c = g_connection;
  pthread_mutex_lock(&c.mutex);
  int error = EnsureConnected();
  if (error == 0 && BringsCounter(header.op)) error = EnsureWatched();
  bool broken = false;
  if (error == 0) {
    CallPage* const page = c.page.load();
    if (page != nullptr && FitsPage(header.size, out.size, descriptor_count)) {
      error = ExchangeByPage(*page, header, in, out, {WakeHost, HasEnded, c.gone});
    } else {
      error = OwnsDescriptors() ? Exchange(c.socket, header, in, out, descriptors, descriptor_count)
                                : EIO;
    }
    // EIO is also an answer a host may give; only a dead socket ends the connection.
    broken = error == EIO && HasEnded();
  }
  pthread_mutex_unlock(&c.mutex);
  if (broken) MarkGone();
  return error;
}

}  // namespace

std::byte* MapSpan(const SharedSpan& span) {
  Connection& c = g_connection;
  pthread_mutex_lock(&c.segments_mutex);
  bool known;
  std::byte* bytes = c.segments.Find(span, known);
  if (!known) {
    MappedSegment segment;
    pthread_mutex_lock(&c.mutex);
    int error = EnsureConnected();
    if (error == 0) error = MapSegment(span.segment, segment, c.socket);
    pthread_mutex_unlock(&c.mutex);
    if (error == 0 && !c.segments.Add(segment)) {
      munmap(segment.bytes, segment.length);
      error = ENOMEM;
    }
    if (error == 0) {
      bytes = Place(span, segment);
    } else {
      errno = error;
    }
  }
  pthread_mutex_unlock(&c.segments_mutex);
  return bytes;
}

bool IsDoorbell(uint32_t qp, uint32_t slot) {
  return slot < DoorbellPage::kMaxQueues && DoorbellsOf(qp) != nullptr;
}

void RingQueue(uint32_t qp, uint32_t slot) {
  RejoinIfForked();
  DoorbellPage* const page = DoorbellsOf(qp);
  if (page == nullptr || !RingDoorbell(*page, slot)) return;
  if (const rdmaemu_embedded_host* const embedded = Embedded()) return embedded->ring();
  WakeHost();
}

bool HasPayloadShortcuts(uint32_t qp) {
  DoorbellPage* const page = DoorbellsOf(qp);
  return page != nullptr && page->no_payload_shortcuts == 0;
}

bool IsWatched(CallOp op, uint32_t handle) {
  DoorbellPage* const page = DoorbellsOf(handle);
  return page != nullptr &&
         (std::atomic_ref(page->watched_calls).load(std::memory_order_relaxed) & WatchBit(op)) != 0;
}

// Hosts inside this process copy alone, and have none.
JobPage* Jobs() {
  DoorbellPage* page = g_connection.doorbells[0].load(std::memory_order_relaxed);
  return page == nullptr ? nullptr : &page->jobs;
}

void JobsDone() {
  if (MustWakeHost(*g_connection.doorbells[0].load(std::memory_order_relaxed))) WakeHost();
}

bool IsEmbedded() { return Embedded() != nullptr; }

bool DriveEmbedded() {
  const rdmaemu_embedded_host* const embedded = Embedded();
  if (embedded == nullptr) return false;
  embedded->idle();
  return true;
}

bool HostIsGone() { return g_connection.gone.load(std::memory_order_relaxed); }

bool HostIsGone(uint32_t handle) {
  const uint32_t ended = g_ended_hosts.load(std::memory_order_relaxed);
  return HostIsGone() || (ended >> IdSpace::PartOf(handle) & 1) != 0;
}

}  // namespace rdmaemu::client

extern "C" {

int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  using namespace rdmaemu::client;
  if (in_size > rdmaemu::kMaxCallBytes - sizeof(rdmaemu::CallHeader) ||
      descriptor_count > rdmaemu::kMaxReplyDescriptors) {
    return EINVAL;
  }
  // Connecting opens files and spawns, which are cancellation points.
  int cancel_state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  const int saved_errno = errno;
  Buffer buffer{out, out_size, 0};
  ReleaseToDevice();
  const rdmaemu_embedded_host* const embedded = Embedded();
  const int error = embedded == nullptr
                        ? CallHostProcess({op, in_size}, in, buffer, descriptors, descriptor_count)
                        : embedded->call(op, in, in_size, out, out_size, &buffer.filled,
                                         descriptors, descriptor_count);
  if (error == 0 && BringsCounter(op)) {
    for (uint32_t i = 0; i < descriptor_count; i++) RememberCounter(descriptors[i]);
    // The host may have died before the counter was on the list.
    if (HostIsGone()) FillCounters();
  }
  AcquireFromDevice();
  if (out_filled != nullptr) *out_filled = error == 0 ? buffer.filled : 0;
  errno = saved_errno;
  pthread_setcancelstate(cancel_state, nullptr);
  return error;
}

int rdmaemu_client_embed(const rdmaemu_embedded_host* host) {
  using namespace rdmaemu::client;
  RegisterForkHandlersOnce();
  auto& c = g_connection;
  pthread_mutex_lock(&c.segments_mutex);
  pthread_mutex_lock(&c.mutex);
  int error = c.socket >= 0 || c.must_rejoin.load() ? EBUSY : 0;
  if (error == 0) {
    ForgetSegments();
    g_ended_hosts = 0;
    g_embedded = host;
    c.generation++;
    c.gone = host == nullptr;
    if (host != nullptr) error = GreetEmbedded(*host, 0);
    if (error != 0) {
      g_embedded = nullptr;
      c.gone = true;
    }
  }
  pthread_mutex_unlock(&c.mutex);
  pthread_mutex_unlock(&c.segments_mutex);
  if (host == nullptr) FillCounters();  // who waits returns
  return error;
}

int rdmaemu_client_join(uint32_t number) {
  using namespace rdmaemu::client;
  auto& c = g_connection;
  const rdmaemu_embedded_host* const embedded = Embedded();
  if (embedded == nullptr || number >= rdmaemu::IdSpace::kMaxParts) return EINVAL;
  pthread_mutex_lock(&c.segments_mutex);
  pthread_mutex_lock(&c.mutex);
  const int error = GreetEmbedded(*embedded, number);
  pthread_mutex_unlock(&c.mutex);
  pthread_mutex_unlock(&c.segments_mutex);
  return error;
}

void rdmaemu_client_host_ended(uint32_t number) {
  if (number < rdmaemu::IdSpace::kMaxParts) rdmaemu::client::g_ended_hosts |= 1u << number;
}

uint32_t rdmaemu_client_host_generation() {
  return rdmaemu::client::g_connection.generation.load(std::memory_order_relaxed);
}

int rdmaemu_client_is_forked_from(uint32_t owner_pid) {
  return owner_pid != static_cast<uint32_t>(getpid());
}
}
