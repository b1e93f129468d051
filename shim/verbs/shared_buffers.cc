#include "shim/verbs/shared_buffers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "emulator/abi/buffer_arena.h"
#include "shim/client/client.h"
#include "shim/client/machine_clock.h"
#include "shim/client/system.h"

namespace rdmaemu::shim {
namespace {

// Each buffer splits mappings, of which a process may have 65530 (vm.max_map_count).
constexpr size_t kMaxSharedBuffers = 1024;
// A copy takes the host far less time, unless the host was stopped.
constexpr time_t kLongestHostCopy_s = 1;

constexpr size_t kGranule = BufferArena::kGranuleBytes;

struct Arena {
  enum class State { kNone, kMaking, kReady, kRefused };

  // Held over fork(2), so never during a call to the host.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  State state = State::kNone;
  // The process that made the arena. A child without fork handlers (clone(2)) has another pid, and
  // must not change what it shares with its parent.
  pid_t owner = 0;
  char* begin = nullptr;  // the shared mapping, which starts with a BufferArena
  char* spare = nullptr;  // the private mapping
  // Granules that cannot be allocated: in use, or private since a fork.
  uint64_t used[BufferArena::kGranules / 64] = {};
  SharedBuffer* live = nullptr;
  size_t count = 0;

  BufferArena& control() { return *reinterpret_cast<BufferArena*>(begin); }
  bool is_own() const { return owner == getpid(); }
};
Arena g_arena;

class ArenaLock {
 public:
  ArenaLock() { pthread_mutex_lock(&g_arena.mutex); }
  ~ArenaLock() { pthread_mutex_unlock(&g_arena.mutex); }
  ArenaLock(const ArenaLock&) = delete;
  ArenaLock& operator=(const ArenaLock&) = delete;
};

// ---- granules. The caller holds the lock.

size_t GranuleOf(const SharedBuffer& buffer) {
  return static_cast<size_t>(buffer.begin - g_arena.begin) / kGranule;
}

void MarkUsed(size_t first, size_t count, bool used) {
  for (size_t at = first; at < first + count; at++) {
    const uint64_t bit = uint64_t{1} << (at % 64);
    uint64_t& word = g_arena.used[at / 64];
    word = used ? word | bit : word & ~bit;
  }
}

// Returns the first of `count` free granules in a row, or 0. Granule 0 is never free. All requests
// are whole pages, so each result begins a page.
size_t FindFree(size_t count) {
  size_t run = 0;
  for (size_t at = 0; at < BufferArena::kGranules; at++) {
    const bool used = (g_arena.used[at / 64] >> (at % 64) & 1) != 0;
    run = used ? 0 : run + 1;
    if (run == count) return at + 1 - count;
  }
  return 0;
}

// ---- changes of mappings. The caller holds the lock.

uint64_t MachineSeconds() {
  timespec now;
  client::MachineClock()(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec);
}

void BeginChange() { std::atomic_ref(g_arena.control().changes).fetch_add(1); }
void EndChange() { std::atomic_ref(g_arena.control().changes).fetch_add(1); }

// Waits until the host has ended the access that it has begun. A host that was stopped within an
// access detects the change later, and repeats the access.
void AwaitHost() {
  const std::atomic_ref copies(g_arena.control().host_copies);
  uint64_t began = 0;
  while (copies.load(std::memory_order_seq_cst) != 0 && !client::HostIsGone()) {
    const uint64_t now = MachineSeconds();
    if (began == 0) began = now;
    if (now - began > kLongestHostCopy_s) return;
    sched_yield();
  }
}

// Gives access to private pages. A program may have lowered RLIMIT_DATA since the buffer was
// allocated. As the pages only replace others, the soft limit is raised meanwhile.
bool GiveAccess(char* spare, size_t bytes) {
  if (mprotect(spare, bytes, PROT_READ | PROT_WRITE) == 0) return true;
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_DATA, &raised) != 0) return false;
  const bool opened = mprotect(spare, bytes, PROT_READ | PROT_WRITE) == 0;
  setrlimit(RLIMIT_DATA, &limit);
  return opened;
}

// Replaces shared pages by private ones with the same bytes, for all threads at once.
bool MakePrivate(char* shared, size_t bytes) {
  char* const spare = g_arena.spare + (shared - g_arena.begin);
  // After mlockall(2), giving access would copy the pages, and lose what threads write meanwhile.
  munlock(spare, bytes);
  if (!GiveAccess(spare, bytes)) return false;
  madvise(spare, bytes, MADV_DODUMP);
  return mremap(spare, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, shared) != MAP_FAILED;
}

// Returns the pages of a buffer to the arena. Returns false if they may still have bytes.
bool GiveBack(char* begin, size_t bytes) {
  return mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0 &&
         madvise(begin, bytes, MADV_REMOVE) == 0 && mprotect(begin, bytes, PROT_NONE) == 0 &&
         madvise(begin, bytes, MADV_DONTDUMP) == 0;
}

void Link(SharedBuffer& buffer) {
  buffer.previous = nullptr;
  buffer.next = g_arena.live;
  if (g_arena.live != nullptr) g_arena.live->previous = &buffer;
  g_arena.live = &buffer;
  g_arena.count++;
}

void Unlink(SharedBuffer& buffer) {
  if (buffer.next != nullptr) buffer.next->previous = buffer.previous;
  (buffer.previous != nullptr ? buffer.previous->next : g_arena.live) = buffer.next;
  g_arena.count--;
}

// ---- fork

// Makes all shared buffers private. The host's later writes reach this process alone, and each
// process's writes stay its own. The granules are never shared again, because the child may read
// them.
void MakeAllPrivate() {
  const int before = errno;
  pthread_mutex_lock(&g_arena.mutex);
  const bool is_own = g_arena.live != nullptr && g_arena.is_own();
  if (is_own) {
    BeginChange();
    for (SharedBuffer* each = g_arena.live; each != nullptr; each = each->next) {
      g_arena.control().Hide(GranuleOf(*each), each->bytes / kGranule);
    }
    AwaitHost();
  }
  while (g_arena.live != nullptr) {
    SharedBuffer& buffer = *g_arena.live;
    // A child must not write into its parent's pages, so without private ones it gets none.
    if (!MakePrivate(buffer.begin, buffer.bytes))
      madvise(buffer.begin, buffer.bytes, MADV_DONTFORK);
    buffer.is_shared = false;
    Unlink(buffer);
  }
  if (is_own) EndChange();
  errno = before;
}

void UnlockArenaInParent() { pthread_mutex_unlock(&g_arena.mutex); }

// The arena is the parent's. The child makes one of its own when it needs one.
void ForgetArenaInChild() {
  pthread_mutex_init(&g_arena.mutex, nullptr);
  g_arena.state = Arena::State::kNone;
}

void RegisterArenaForkHandlers() {
  pthread_atfork(MakeAllPrivate, UnlockArenaInParent, ForgetArenaInChild);
}

// ---- making the arena

bool IsUnlimited(int resource) {
  rlimit limit{};
  return getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 &&
         limit.rlim_cur == RLIM_INFINITY;
}

// Returns false if the kernel counts the two mappings of the arena, or may refuse MakePrivate for
// lack of memory (vm.overcommit_memory 2, or unknown).
bool MayMapMuch() {
  if (!IsUnlimited(RLIMIT_AS) || !IsUnlimited(RLIMIT_DATA)) return false;
  const auto fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return false;
  char mode = '2';
  const bool known = syscall(SYS_read, fd, &mode, 1) == 1;
  client::SysClose(fd);
  return known && mode != '2';
}

// Maps the arena's file at `begin`, and a second time privately. Checks that a private page can
// replace a shared one, which a sandbox may refuse. The caller holds the lock.
bool MapArena(int fd, char* begin) {
  constexpr size_t kAll = BufferArena::kBytes, kControl = BufferArena::kControlBytes;
  if (mmap(begin, kAll, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
      mprotect(begin, kControl, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  void* const spare = mmap(nullptr, kAll, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (spare == MAP_FAILED) return false;
  g_arena.begin = begin;
  g_arena.spare = static_cast<char*>(spare);
  madvise(begin, kAll, MADV_DONTDUMP);
  madvise(spare, kAll, MADV_DONTDUMP);
  memset(g_arena.used, 0, sizeof g_arena.used);
  MarkUsed(0, 2 * kControl / kGranule, true);  // the struct, and as much for the check
  if (MakePrivate(begin + kControl, kControl) && begin[kControl] == 0) return true;
  munmap(spare, kAll);
  return false;
}

Arena::State MakeArena() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, RegisterArenaForkHandlers);
  if (!MayMapMuch()) return Arena::State::kRefused;
  void* const room = mmap(nullptr, BufferArena::kBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return Arena::State::kRefused;
  const ShareBuffersIn in{reinterpret_cast<uintptr_t>(room)};
  int fd = -1;
  const int error = rdmaemu_client_call(static_cast<uint32_t>(CallOp::kShareBuffers), &in,
                                        sizeof in, nullptr, 0, nullptr, &fd, 1);
  bool mapped = false;
  if (error == 0) {
    const ArenaLock lock;
    mapped = MapArena(fd, static_cast<char*>(room));
    g_arena.owner = getpid();
    client::SysClose(fd);
  }
  if (mapped) return Arena::State::kReady;
  munmap(room, BufferArena::kBytes);
  return Arena::State::kRefused;
}

// Makes the arena if this is the first call. Other threads meanwhile get false.
bool HasArena() {
  {
    const ArenaLock lock;
    if (g_arena.state != Arena::State::kNone) return g_arena.state == Arena::State::kReady;
    g_arena.state = Arena::State::kMaking;
  }
  const Arena::State state = MakeArena();
  const ArenaLock lock;
  g_arena.state = state;
  return state == Arena::State::kReady;
}

// The caller holds the lock.
bool PlaceInArena(size_t bytes, SharedBuffer& out) {
  if (bytes > BufferArena::kBytes || g_arena.count >= kMaxSharedBuffers) return false;
  const size_t count = bytes / kGranule, first = FindFree(count);
  if (first == 0) return false;
  char* const begin = g_arena.begin + first * kGranule;
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(begin, bytes, MADV_DODUMP);
  MarkUsed(first, count, true);
  out.begin = begin;
  out.bytes = bytes;
  out.is_shared = true;
  Link(out);
  g_arena.control().Show(first, count);
  return true;
}

}  // namespace

bool AllocateShared(uint32_t handle, size_t bytes, SharedBuffer& out) {
  if (client::IsEmbedded() || !client::HasPayloadShortcuts(handle)) return false;
  const int before = errno;
  bool shared = false;
  if (HasArena()) {
    const ArenaLock lock;
    if (g_arena.is_own()) {
      shared = PlaceInArena(bytes, out);
      if (!shared) std::atomic_ref(g_arena.control().ordinary_buffers).fetch_add(1);
    }
  }
  errno = before;
  return shared;
}

void FreeBuffer(SharedBuffer& buffer) {
  const int before = errno;
  {
    const ArenaLock lock;
    const bool is_own = buffer.is_shared && g_arena.is_own();
    if (buffer.is_shared) Unlink(buffer);
    if (is_own) {
      const size_t first = GranuleOf(buffer), count = buffer.bytes / kGranule;
      BeginChange();
      g_arena.control().Hide(first, count);
      AwaitHost();
      if (GiveBack(buffer.begin, buffer.bytes)) MarkUsed(first, count, false);
      EndChange();
    } else {
      munmap(buffer.begin, buffer.bytes);
    }
  }
  errno = before;
}

}  // namespace rdmaemu::shim
