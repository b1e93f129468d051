#include "shim/layer/checks/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/layer/caller.h"
#include "shim/layer/checks/findings.h"
#include "shim/layer/checks/section.h"

namespace rdmaemu::layer::checks {
namespace {

constexpr int kStackWords = 32;  // words of the stack in the record of an access

std::atomic<int> g_error;
std::atomic<bool> g_is_tried;  // true after AreIgnored was called

size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

int ThisThread() {
  static thread_local int thread;
  static thread_local uint32_t generation;
  // A forked child has another thread id.
  if (thread == 0 || generation != Generation()) {
    thread = static_cast<int>(syscall(SYS_gettid));
    generation = Generation();
  }
  return thread;
}

bool HasEnded(int thread) {
  return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

// Returns the length of a breakpoint at an address: the largest power of two that is aligned.
uint32_t BreakpointLength(uint64_t address, uint32_t length) {
  uint32_t result = HW_BREAKPOINT_LEN_8;
  while (result > length || address % result != 0) result /= 2;
  return result;
}

// Opens a breakpoint for accesses of this thread. Returns a descriptor, or -1 with errno.
long OpenBreakpoint(uint64_t address, uint32_t length) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_BREAKPOINT;
  attr.bp_type = HW_BREAKPOINT_RW;
  attr.bp_addr = address;
  attr.bp_len = length;
  attr.sample_period = 1;
  attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_STACK_USER;
  attr.sample_stack_user = kStackWords * sizeof(uint64_t);
  attr.exclude_kernel = attr.exclude_hv = 1;
  return syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

// Returns whether the processor ignores breakpoints. Some virtual machines accept a breakpoint and
// never report an access. Returns false when a trial is impossible. Open then reports the error.
bool AreIgnored() {
  alignas(8) static volatile uint64_t word;
  const long fd =
      OpenBreakpoint(reinterpret_cast<uint64_t>(&word), static_cast<uint32_t>(sizeof word));
  if (fd < 0) return false;
  word = word + 1;
  uint64_t accesses = 0;
  const bool is_read = syscall(SYS_read, fd, &accesses, sizeof accesses) == sizeof accesses;
  syscall(SYS_close, fd);
  return is_read && accesses == 0;
}

const void* BaseOf(const void* code) {
  Dl_info info;
  return dladdr(code, &info) == 0 ? nullptr : info.dli_fbase;
}

// Returns whether a host is inside this process. Such a host may write to receive buffers during
// any wait.
bool IsEmbedded() { return dlsym(RTLD_DEFAULT, "rdmaemu_open") != nullptr; }

}  // namespace

Watch Watch::all_[kMaxWatches];

int WatchError() { return g_error.load(std::memory_order_relaxed); }

bool Watch::IsOfThisThread() const {
  return state_.load(std::memory_order_relaxed) != State::kFree && generation_ == Generation() &&
         thread_ == ThisThread();
}

uint64_t Watch::Accesses() const {
  return __atomic_load_n(&static_cast<const perf_event_mmap_page*>(ring_)->data_head,
                         __ATOMIC_ACQUIRE);
}

bool Watch::Open(uint64_t address, uint32_t length) {
  const long fd = OpenBreakpoint(address, BreakpointLength(address, length));
  // ENOSPC: a debugger uses the breakpoints. EINVAL: the program's address is no address.
  const bool is_temporary =
      errno == ENOSPC || errno == EMFILE || errno == ENFILE || errno == EINVAL;
  if (fd < 0 && is_temporary) return false;
  if (fd < 0) {
    g_error = errno;
    return false;
  }
  // The mapping keeps the event alive.
  const long ring =
      syscall(SYS_mmap, nullptr, 2 * PageSize(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t{0});
  if (ring == -1) g_error = errno;
  syscall(SYS_close, fd);
  ring_ = reinterpret_cast<void*>(ring);
  return ring != -1;
}

void Watch::Close() {
  munmap(ring_, 2 * PageSize());
  ring_ = nullptr;
  state_ = State::kFree;
}

Watch* Watch::Begin(const ibv_sge* sges, int count, uint32_t skipped) {
  while (count > 0 && sges->length <= skipped) {
    skipped -= sges->length;
    sges++;
    count--;
  }
  if (count <= 0 || g_error.load(std::memory_order_relaxed) != 0) return nullptr;
  if (!g_is_tried.exchange(true, std::memory_order_relaxed) && AreIgnored()) {
    g_error = kBreakpointsIgnored;
    return nullptr;
  }
  for (Watch& each : all_) {
    const State state = each.state_;
    // A forked child has no mappings of its parent's watches.
    const bool is_lost = state != State::kFree && each.generation_ != Generation();
    if (state == State::kEnded && !is_lost) {
      if (!each.IsOfThisThread() && !HasEnded(each.thread_)) continue;
      each.Close();
    } else if (state != State::kFree && !is_lost) {
      continue;
    }
    const uint64_t address = sges->addr + skipped;
    if (IsEmbedded() || !each.Open(address, sges->length - skipped)) return nullptr;
    each.address_ = address;
    each.read_to_ = 0;
    each.first_ = nullptr;
    each.place = nullptr;
    each.generation_ = Generation();
    each.thread_ = ThisThread();
    each.state_ = State::kWatching;
    exist_ = true;
    return &each;
  }
  return nullptr;
}

void Watch::Read(uint64_t at, void* out, size_t size) const {
  const auto* const data = static_cast<const char*>(ring_) + PageSize();
  for (size_t i = 0; i < size; i++) static_cast<char*>(out)[i] = data[(at + i) % PageSize()];
}

// The C library's function that accesses the memory has its caller's address on the stack.
void Watch::Collect(uint64_t until) {
  struct {
    perf_event_header header;
    uint64_t code;
    uint64_t size;
    uint64_t stack[kStackWords];
    uint64_t filled;
  } access;
  const void* const libc = BaseOf(reinterpret_cast<const void*>(&getenv));
  while (read_to_ < until && first_ == nullptr) {
    Read(read_to_, &access.header, sizeof access.header);
    if (access.header.size == 0) break;
    const uint64_t at = read_to_;
    read_to_ += access.header.size;
    if (access.header.type != PERF_RECORD_SAMPLE || access.header.size != sizeof access) continue;
    Read(at, &access, sizeof access);
    const void* code = reinterpret_cast<const void*>(access.code - 1);
    const uint64_t words = std::min<uint64_t>(access.filled / sizeof(uint64_t), kStackWords);
    for (uint64_t i = 0; i < words && BaseOf(code) == libc; i++) {
      const void* const word = reinterpret_cast<const void*>(access.stack[i]);
      if (BaseOf(word) != nullptr) code = static_cast<const char*>(word) - 1;
    }
    if (BaseOf(code) != libc && rdmaemu_layer_is_program(code)) first_ = code;
  }
  read_to_ = std::max(read_to_, until);
}

const void* Watch::End() {
  if (generation_ != Generation()) return nullptr;
  Collect(Accesses());
  const void* const first = first_;
  if (IsOfThisThread()) {
    Close();
  } else {
    // The owner may be in LibraryAccesses, which reads the ring.
    state_ = State::kEnded;
  }
  bool exist = false;
  for (const Watch& each : all_) exist |= each.state_ != State::kFree;
  exist_ = exist;
  return first;
}

void LibraryAccesses::Begin() {
  for (int i = 0; i < Watch::kMaxWatches; i++) {
    if (Watch::all_[i].IsOfThisThread()) before_[i] = Watch::all_[i].Accesses() + 1;
  }
}

void LibraryAccesses::End() {
  for (int i = 0; i < Watch::kMaxWatches; i++) {
    Watch& watch = Watch::all_[i];
    if (before_[i] == 0 || !watch.IsOfThisThread()) continue;
    const uint64_t now = watch.Accesses();
    if (now == before_[i] - 1) continue;
    const Section section;
    if (!section || !watch.IsOfThisThread()) continue;
    watch.Collect(before_[i] - 1);
    watch.read_to_ = now;
  }
}

}  // namespace rdmaemu::layer::checks
