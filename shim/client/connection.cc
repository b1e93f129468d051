// The connection to the host: how it is made, used for calls and shared segments, kept through
// fork, and what follows from the host's end.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>

#include "emulator/abi/process_page.h"
#include "emulator/abi/ring.h"
#include "emulator/base/id_space.h"
#include "shim/client/announced_calls.h"
#include "shim/client/call_sites.h"
#include "shim/client/cancellation.h"
#include "shim/client/client.h"
#include "shim/client/counters.h"
#include "shim/client/embedded.h"
#include "shim/client/file_id.h"
#include "shim/client/fork_lock.h"
#include "shim/client/launch.h"
#include "shim/client/messages.h"
#include "shim/client/own_doorbells.h"
#include "shim/client/own_pid.h"
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
// Bit N is set when host N inside this process has ended.
std::atomic<uint32_t> g_ended_hosts{0};
static_assert(IdSpace::kMaxParts <= 32);

namespace {

constexpr int kStartAttempts = 3;  // a host may end between its discovery and the Hello

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
Connection g_connection;

// How many locks of calls this thread waits for, or holds. For signal handlers.
thread_local volatile int t_calls __attribute__((tls_model("initial-exec")));

void LockConnection() {
  t_calls = t_calls + 1;
  pthread_mutex_lock(&g_connection.mutex);
}
void UnlockConnection() {
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
bool OwnsDescriptors() {
  const Connection& c = g_connection;
  return (c.socket < 0 || FileIdOf(c.socket) == c.socket_id) &&
         FileIdOf(c.doorbell_fd) == c.doorbell_id;
}

void MarkGone() {
  if (g_connection.gone.exchange(true)) return;
  g_connection.is_settled = false;
  if (OwnsDescriptors()) {
    ComplainOfEnd(g_connection.place, g_connection.host_pid);
  } else {
    Complain(
        Complaint::kGone,
        "this program has closed the connection to host '%s' together with other descriptors that "
        "it did not open (closefrom?), so all calls fail with EIO; open devices after closefrom",
        g_connection.place.name);
    DoubtCounters();
  }
  FillCounters();
  g_connection.pages.WakeCallers();
}

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

// ---- connecting

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

// Returns true if the host has ended or is unreachable.
bool HasEnded() { return !OwnsDescriptors() || SysHasHungUp(g_connection.socket); }

}  // namespace

bool WakeHost() {
  if (!OwnsDescriptors()) {
    MarkGone();
    return false;
  }
  SysAddToEventfd(g_connection.doorbell_fd, 1);
  return true;
}

namespace {

// Starts the thread that wakes up threads that wait on counters when the host ends.
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

// Returns the address of the span, and maps its segment if needed. Returns nullptr and errno on
// failure. The caller holds `mutex`.
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

// Unmaps the segments of the previous host, whose objects are invalid.
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

// Returns true for a call that belongs to an earlier post or poll (AskIn).
bool AsksAgain(CallHeader header, const void* in) {
  return IsAsked(CallOp{header.op}) && static_cast<const AskIn*>(in)->again != 0;
}

// A host may return EIO as well. The connection has ended only if its socket is dead.
bool IsBroken(int error) { return error == EIO && HasEnded(); }

int CallByPage(CallHeader header, const void* in, Buffer& out, bool is_nested) {
  Connection& c = g_connection;
  Count(&ProgramPlace::calls);
  t_calls = t_calls + 1;
  const int error = c.pages.Call(header, in, out, {WakeHost, HasEnded, c.gone}, is_nested);
  t_calls = t_calls - 1;
  return error;
}

// Makes a call by the connection, whatever it needs. Holds `mutex` meanwhile, so that recorded
// calls are in the order in which the host gets them. Sets `broken` if the connection has ended.
int CallLocked(CallHeader header, const void* in, Buffer& out, int* descriptors,
               uint32_t descriptor_count, uint32_t site, bool& broken) {
  Connection& c = g_connection;
  int error = EnsureConnected();
  if (error == 0 && HasTrait(header.op, kBringsCounter)) error = EnsureWatched();
  if (error != 0) return error;
  if (site != 0 && !AsksAgain(header, in)) RecordCall(site, c.process, header.op);
  if (c.pages.are_mapped() && FitsPage(header.size, out.size, descriptor_count)) {
    error = CallByPage(header, in, out, /*is_nested=*/false);
  } else {
    error = OwnsDescriptors() ? Exchange(c.socket, header, in, out, descriptors, descriptor_count)
                              : EIO;
  }
  broken = IsBroken(error);
  return error;
}

int CallHostProcess(CallHeader header, const void* in, Buffer& out, int* descriptors,
                    uint32_t descriptor_count) {
  Connection& c = g_connection;
  const uint32_t site = FindCallSite();
  int error;
  bool broken = false;
  if (site == 0 && c.is_settled.load() && c.pages.are_mapped() &&
      FitsPage(header.size, out.size, descriptor_count)) {
    error = CallByPage(header, in, out, /*is_nested=*/!MayCall());
    broken = IsBroken(error);
  } else {
    LockConnection();
    error = CallLocked(header, in, out, descriptors, descriptor_count, site, broken);
    UnlockConnection();
  }
  if (broken) MarkGone();
  return error;
}

}  // namespace

uint32_t SendSequence(const void* in, uint32_t in_size, void* out, uint32_t out_size) {
  DoorbellPage* const page = OwnDoorbells();
  if (Embedded() != nullptr || page == nullptr || FindCallSite() != 0) return 0;
  const uint32_t watched = std::atomic_ref(page->watched_calls).load(std::memory_order_relaxed);
  if ((watched & DoorbellPage::kNoSequences) != 0) return 0;
  Buffer reply{out, out_size, 0};
  const CallHeader header{static_cast<uint32_t>(CallOp::kSequence), in_size};
  return CallHostProcess(header, in, reply, nullptr, 0) == 0 ? reply.filled : 0;
}

uint32_t TakeOfferedEvent(uint32_t channel, uint32_t devices, void* out, uint32_t out_size) {
  ProcessPage* const page = g_connection.process_page;
  if (Embedded() != nullptr || page == nullptr || HostIsGone() || FindCallSite() != 0) return 0;
  return page->offers.Take(channel, devices, out, out_size);
}

bool MayCall() { return t_calls <= 0; }

bool HasToJoin() { return g_connection.must_rejoin.load(std::memory_order_relaxed); }

void JoinIfForked() {
  if (!HasToJoin()) [[likely]]
    return;
  const CancellationHeld held;
  const int saved_errno = errno;
  LockConnection();
  EnsureConnected();
  UnlockConnection();
  errno = saved_errno;
}

std::byte* MapSpan(const SharedSpan& span) {
  Connection& c = g_connection;
  {
    ForkMutexLock lock;
    bool known;
    std::byte* const bytes = c.segments.Find(span, known);
    if (known) return bytes;
  }
  const CancellationHeld held;
  LockConnection();
  const int error = EnsureConnected();
  std::byte* const bytes = error == 0 ? MapSpanLocked(span, c.socket) : nullptr;
  UnlockConnection();
  if (error != 0) errno = error;
  return bytes;
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
  JoinIfForked();
  const uint32_t ended = g_ended_hosts.load(std::memory_order_relaxed);
  return HostIsGone() || HasToJoin() || (ended >> IdSpace::PartOf(handle) & 1) != 0;
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
  // Connecting opens files and spawns a process, which are cancellation points.
  const CancellationHeld held;
  const int saved_errno = errno;
  Buffer buffer{out, out_size, 0};
  ReleaseToDevice();
  AnnouncedReply known{};
  if (descriptor_count == 0 && TakeAnnounced(op, in, in_size, known)) {
    AcquireFromDevice();
    buffer.filled = known.size < out_size ? known.size : out_size;
    if (known.error == 0 && buffer.filled > 0) memcpy(out, known.bytes, buffer.filled);
    if (out_filled != nullptr) *out_filled = known.error == 0 ? buffer.filled : 0;
    errno = saved_errno;
    return known.error;
  }
  const rdmaemu_embedded_host* const embedded = Embedded();
  const int error = embedded == nullptr
                        ? CallHostProcess({op, in_size}, in, buffer, descriptors, descriptor_count)
                        : embedded->call(op, in, in_size, out, out_size, &buffer.filled,
                                         descriptors, descriptor_count);
  if (error == 0 && rdmaemu::HasTrait(op, rdmaemu::kBringsCounter)) {
    for (uint32_t i = 0; i < descriptor_count; i++) RememberCounter(descriptors[i]);
    // The host may have died before the counter was remembered.
    if (HostIsGone()) FillCounters();
  }
  AcquireFromDevice();
  if (out_filled != nullptr) *out_filled = error == 0 ? buffer.filled : 0;
  errno = saved_errno;
  return error;
}

int rdmaemu_client_embed(const rdmaemu_embedded_host* host) {
  using namespace rdmaemu::client;
  RegisterForkHandlersOnce();
  auto& c = g_connection;
  LockConnection();
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
  UnlockConnection();
  if (host == nullptr) FillCounters();  // waiting threads then return
  return error;
}

int rdmaemu_client_join(uint32_t number) {
  using namespace rdmaemu::client;
  const rdmaemu_embedded_host* const embedded = Embedded();
  if (embedded == nullptr || number >= rdmaemu::IdSpace::kMaxParts) return EINVAL;
  LockConnection();
  const int error = GreetEmbedded(*embedded, number);
  UnlockConnection();
  return error;
}

void rdmaemu_client_host_ended(uint32_t number) {
  if (number < rdmaemu::IdSpace::kMaxParts) rdmaemu::client::g_ended_hosts |= 1u << number;
}

uint32_t rdmaemu_client_host_generation() {
  return rdmaemu::client::g_connection.generation.load(std::memory_order_relaxed);
}

int rdmaemu_client_is_forked_from(uint32_t owner_pid) {
  return owner_pid != rdmaemu::client::OwnPid();
}
}
