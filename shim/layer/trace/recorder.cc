#include "shim/layer/trace/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim/layer/injected.h"

namespace rdmaemu::layer::trace {
namespace {

constexpr size_t kMaxPathBytes = 4096;
// Values of the generation word before the process has begun (kNone), and while a thread begins it
// (kBusy).
constexpr uint64_t kNone = 0, kBusy = 1;

// The most attempts of a system call that signals interrupt.
constexpr int kMaxAttempts = 1000;

Control* g_control;
bool g_has_ticks;
char g_directory[kMaxPathBytes];
bool g_is_emulator;

// The state of the process. A forked child has a copy of all but the generation word. The kernel
// clears the page of that word (MADV_WIPEONFORK), whichever call created the child.
std::atomic<uint64_t>* g_generation;
uint64_t g_generations = kBusy;
uint32_t g_process, g_image;
std::atomic<uint32_t> g_threads;
uint64_t g_fork_time;
pthread_key_t g_thread_end;

// In static TLS, of which dlopen has a surplus of 512 bytes. `t_handler` is for signal handlers
// that interrupt a record in `t_thread`.
thread_local Thread t_thread, t_handler;
static_assert(sizeof(Thread) <= 72);

void Lose(Loss reason, uint64_t records = 1) {
  g_control->lost[static_cast<size_t>(reason)].fetch_add(records, std::memory_order_relaxed);
}

// Signals that an instruction of the thread raises. The kernel ends a process that blocks them.
constexpr int kSynchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

// Blocks all other signals of the thread.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int signal : kSynchronous) sigdelset(&all, signal);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Returns whether the thread has a window of the process, with room for one record.
bool HasRoom(const Thread& thread) {
  return thread.generation == g_generation->load(std::memory_order_relaxed) &&
         thread.end - thread.at >= static_cast<ptrdiff_t>(kMaxRecordBytes);
}

size_t ReadFile(const char* path, char* out, size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t count = read(fd, out, room);
  close(fd);
  return count < 0 ? 0 : static_cast<size_t>(count);
}

// Writes the path DIRECTORY/PID-IMAGE-THREAD and a suffix to `out`. Does not use stdio, because
// signal handlers call this function, too.
void PathOf(const Thread& thread, const char* suffix, char* out) {
  char* at = stpcpy(out, g_directory);
  const uint32_t numbers[] = {g_process, g_image, thread.number};
  char separator = '/';
  for (const uint32_t number : numbers) {
    *at++ = separator;
    separator = '-';
    char digits[10];
    int count = 0;
    uint32_t rest = number;
    do digits[count++] = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    while (count > 0) *at++ = digits[--count];
  }
  stpcpy(at, suffix);
}

// Returns whether RLIMIT_FSIZE allows a file of this size. The kernel sends SIGXFSZ to a process
// that exceeds the limit.
bool FitsFileLimit(uint64_t bytes) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

// Counts `bytes` towards the recording's limit. Returns false when they would exceed the limit.
bool Reserve(uint64_t bytes) {
  if (g_control->used_bytes.fetch_add(bytes) + bytes <= g_control->limit_bytes) return true;
  g_control->used_bytes.fetch_sub(bytes);
  return false;
}

void Unreserve(uint64_t bytes) { g_control->used_bytes.fetch_sub(bytes); }

// Reserves the blocks of a window, because a write to a mapping of a full file system raises
// SIGBUS. On tmpfs the call ends early when a signal arrives.
bool ReserveBlocks(int fd) {
  int error = EINTR;
  for (int attempt = 0; error == EINTR && attempt < kMaxAttempts; attempt++) {
    error = posix_fallocate(fd, 0, kWindowBytes);
  }
  return error == 0;
}

// Creates and maps a window. On failure returns nullptr, with the reason in `why`.
char* MapWindow(const Thread& thread, Loss& why) {
  why = Loss::kLimit;
  if (!Reserve(kWindowBytes)) return nullptr;
  char path[kMaxPathBytes + 64];
  PathOf(thread, kWindowSuffix, path);
  why = Loss::kFile;
  const int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return Unreserve(kWindowBytes), nullptr;
  void* memory = MAP_FAILED;
  if (!FitsFileLimit(kWindowBytes) || !ReserveBlocks(fd)) {
    why = Loss::kDisk;
  } else {
    memory = mmap(nullptr, kWindowBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  }
  close(fd);
  if (memory != MAP_FAILED) return static_cast<char*>(memory);
  unlink(path);
  return Unreserve(kWindowBytes), nullptr;
}

// Creates the thread's window. On failure counts one lost record and returns false.
bool MakeWindow(Thread& thread) {
  if (thread.attempt_in > 0) {
    thread.attempt_in--;
    return Lose(thread.why_not), false;
  }
  char* const window = MapWindow(thread, thread.why_not);
  if (window == nullptr) {
    thread.attempt_in = kRecordsBetweenAttempts;
    return Lose(thread.why_not), false;
  }
  // pthread calls EndThread only if the value is not null. EndThread also ends `t_handler`, whose
  // thread has a value.
  if (&thread == &t_thread) pthread_setspecific(g_thread_end, &thread);
  new (window) WindowHeader{kMagic, g_process, g_image, thread.number, 0, 0, {}};
  thread.begin = window;
  thread.at = window + sizeof(WindowHeader);
  // A header of size 0 follows the last record.
  thread.end = window + kWindowBytes - sizeof(RecordHeader);
  return true;
}

// Returns the number of records in the window. The records of one call count as one.
uint64_t CallsIn(const Thread& thread) {
  uint64_t count = 0;
  for (const char* at = thread.begin + sizeof(WindowHeader); at < thread.at;) {
    const auto& header = *reinterpret_cast<const RecordHeader*>(at);
    const auto kind = static_cast<RecordKind>(header.kind);
    const bool is_part = kind == RecordKind::kOutputs || kind == RecordKind::kCompletions ||
                         kind == RecordKind::kInjected || kind == RecordKind::kPayloads;
    count += is_part ? 0 : 1;
    at += header.bytes;
  }
  return count;
}

// Appends the window's records to the log. On failure returns false, with the reason in `why`. The
// log may then have a part of the records beyond `position`. Readers ignore that part, and the next
// append overwrites it.
bool AppendToLog(const Thread& thread, const char* records, size_t bytes, Loss& why) {
  why = Loss::kLimit;
  if (!Reserve(bytes)) return false;
  char path[kMaxPathBytes + 64];
  PathOf(thread, kLogSuffix, path);
  why = Loss::kFile;
  const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return Unreserve(bytes), false;
  why = Loss::kDisk;
  size_t written = 0;
  while (FitsFileLimit(thread.position + bytes) && written < bytes) {
    const auto at = static_cast<off_t>(thread.position + written);
    const ssize_t count = pwrite(fd, records + written, bytes - written, at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  close(fd);
  if (written < bytes) Unreserve(bytes);
  return written == bytes;
}

// Moves the window's records to the log. Counts the records as lost when that fails.
void EmptyWindow(Thread& thread) {
  char* const records = thread.begin + sizeof(WindowHeader);
  auto* const header = reinterpret_cast<WindowHeader*>(thread.begin);
  const auto bytes = static_cast<size_t>(thread.at - records);
  Loss why;
  if (AppendToLog(thread, records, bytes, why)) {
    thread.position += bytes;
    // With this order of stores, no record is lost or repeated when the process ends between any
    // two of them.
    __atomic_store_n(&header->position, thread.position | kIsInLog, __ATOMIC_RELEASE);
  } else {
    Lose(why, CallsIn(thread));
  }
  __atomic_store_n(&reinterpret_cast<RecordHeader*>(records)->bytes, uint16_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&header->position, thread.position, __ATOMIC_RELEASE);
  thread.at = records;
  thread.polls = nullptr;
}

// Moves the window's records to the log, and frees the window's memory and blocks.
void EndWindow(Thread& thread) {
  if (thread.begin == nullptr || thread.generation != g_generation->load()) return;
  EmptyWindow(thread);
  munmap(thread.begin, kWindowBytes);
  char path[kMaxPathBytes + 64];
  PathOf(thread, kWindowSuffix, path);
  const auto kept = static_cast<off_t>(sizeof(WindowHeader));
  if (truncate(path, kept) == 0) g_control->used_bytes.fetch_sub(kWindowBytes);
}

// Ends a thread's recording. Calls of the thread's later destructors are recorded as another
// thread's.
void EndThread(void*) {
  const BlockedSignals blocked;
  const int before = errno;
  EndWindow(t_handler);
  EndWindow(t_thread);
  t_handler = {};
  t_thread = {};
  errno = before;
}

void PutText(Record& record, const char* text, size_t bytes, bool is_cut = false) {
  record.Put(static_cast<uint16_t>(bytes | (is_cut ? kTextIsCut : 0)));
  record.PutBytes(text, bytes);
}

// Appends the path with symbolic links resolved, because that path ends with the library's version.
void PutRealPath(Record& record, const char* path) {
  char real[PATH_MAX];
  const bool is_found = path != nullptr && realpath(path, real) != nullptr;
  PutText(record, real, is_found ? strnlen(real, kMaxPathTextBytes) : 0);
}

void PutStart() {
  char arguments[kMaxArgumentBytes];
  const size_t bytes = ReadFile("/proc/self/cmdline", arguments, sizeof arguments);
  char program[kMaxPathTextBytes];
  const ssize_t program_bytes = readlink("/proc/self/exe", program, sizeof program);
  Record record(RecordKind::kStart, 0);
  if (!record) return;
  record.Put(static_cast<uint32_t>(getppid()));
  record.Put(static_cast<uint32_t>(g_is_emulator));
  PutText(record, program, program_bytes < 0 ? 0 : static_cast<size_t>(program_bytes));
  PutText(record, arguments, bytes, bytes == sizeof arguments);
  PutRealPath(record, getenv("RDMAEMU_LAYER_VERBS"));
  PutRealPath(record, getenv("RDMAEMU_LAYER_RDMACM"));
}

void PutFork(uint32_t parent, uint32_t parent_image) {
  // _Fork(3) and clone(2) call no fork handler, so g_fork_time is 0.
  uint64_t now = 0;
  Thread* const thread = rdmaemu_layer_begin_record(&now);
  Record record(thread, RecordKind::kFork, 0, g_fork_time != 0 ? g_fork_time : now);
  g_fork_time = 0;
  if (!record) return;
  record.Put(parent);
  record.Put(parent_image);
}

// Begins the recording of a process or forked child, and records its start or fork. If another
// thread is doing this, waits for the new generation instead. Returns the generation.
uint64_t BeginProcess() {
  uint64_t generation = kNone;
  if (!g_generation->compare_exchange_strong(generation, kBusy)) {
    while ((generation = g_generation->load(std::memory_order_acquire)) == kBusy) sched_yield();
    return generation;
  }
  const uint32_t parent = g_process, parent_image = g_image;
  g_process = static_cast<uint32_t>(getpid());
  g_image = g_control->images.fetch_add(1) + 1;
  g_threads.store(0, std::memory_order_relaxed);
  generation = ++g_generations;
  g_generation->store(generation, std::memory_order_release);
  // The start or fork must be this thread's first record. Therefore permit the thread to begin a
  // record.
  t_thread.is_writing = false;
  if (parent == 0) {
    PutStart();
  } else {
    PutFork(parent, parent_image);
  }
  t_thread.is_writing = true;
  return generation;
}

// Returns whether `t_thread` has begun, so that a handler knows its thread's number. Only the
// handler of a signal that an instruction raises (kSynchronous) can interrupt the beginning.
bool MayHandlerRecord() {
  return t_thread.number != 0 &&
         t_thread.generation == g_generation->load(std::memory_order_acquire);
}

// Begins a record and makes room for it when the thread has no window, a full window, or the window
// of another generation. Returns false when the record is lost. Preserves errno.
__attribute__((noinline)) bool MakeRoom(Thread& thread, uint64_t& time) {
  const BlockedSignals blocked;
  const int before = errno;
  const bool is_handlers = &thread == &t_handler;
  if (is_handlers && !MayHandlerRecord()) return Lose(Loss::kHandler), false;
  thread.is_writing = true;
  time = Now();
  uint64_t generation = g_generation->load(std::memory_order_acquire);
  if (generation == kNone || generation == kBusy) generation = BeginProcess();
  if (thread.generation != generation) {
    // After a fork this window belongs to the parent.
    if (thread.begin != nullptr) munmap(thread.begin, kWindowBytes);
    thread = {};
    thread.is_writing = true;
    thread.generation = generation;
    thread.number = is_handlers ? t_thread.number | kIsHandlers : g_threads.fetch_add(1) + 1;
    time = Now();  // the process's start or fork may be this thread's record, too
  }
  const bool has_window = thread.begin != nullptr || MakeWindow(thread);
  if (has_window && thread.end - thread.at < static_cast<ptrdiff_t>(kMaxRecordBytes)) {
    EmptyWindow(thread);
  }
  if (!has_window) thread.is_writing = false;
  errno = before;
  return has_window;
}

void ForkedChild() {
  g_generation->store(kNone, std::memory_order_relaxed);
  g_fork_time = rdmaemu_layer_time();
}

bool HasRecorded() {
  return g_control != nullptr && g_generation->load(std::memory_order_acquire) > kBusy;
}

// The recording stays open, because exit handlers of the program may still make calls.
__attribute__((destructor)) void End() {
  if (HasRecorded()) const Record record(RecordKind::kEnd, 0);
}

Control* MapControl() {
  char path[kMaxPathBytes + 64];
  stpcpy(stpcpy(stpcpy(path, g_directory), "/"), kControlFile);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  auto* const control = static_cast<Control*>(memory);
  errno = EPROTO;  // a recording of another build
  return control->magic == kMagic ? control : nullptr;
}

// Reports to `run` that this process is not in the trace (kUnopenedSuffix). Also prints the reason.
void TellUnopened(const char* directory, const char* reason) {
  fprintf(stderr, "rdmaemu: no trace of process %d: cannot open the recording %s: %s\n", getpid(),
          directory, reason);
  char path[kMaxPathBytes + 64];
  snprintf(path, sizeof path, "%s/%d%s", directory, getpid(), kUnopenedSuffix);
  if (symlink(reason, path) == 0) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  char text[kMaxTextBytes];
  const int bytes = snprintf(text, sizeof text, "%d %s", getpid(), reason);
  const RecordingSocket to(directory);
  sendto(fd, text, static_cast<size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL, to.address(),
         to.length());
  close(fd);
}

}  // namespace

void OpenRecording(bool is_emulator) {
  const char* const directory = getenv("RDMAEMU_LAYER_TRACE");
  if (directory == nullptr) return;
  if (strlen(directory) >= kMaxPathBytes) return TellUnopened(directory, strerror(ENAMETOOLONG));
  stpcpy(g_directory, directory);
  g_is_emulator = is_emulator;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Control* const control = memory == MAP_FAILED ? nullptr : MapControl();
  if (control == nullptr) return TellUnopened(directory, strerror(errno));
  // Linux before 4.14 has no MADV_WIPEONFORK. There, only the handler of fork() clears the word.
  madvise(memory, page, MADV_WIPEONFORK);
  g_generation = new (memory) std::atomic<uint64_t>(kNone);
  pthread_atfork(nullptr, nullptr, ForkedChild);
  if (const int error = pthread_key_create(&g_thread_end, EndThread)) {
    return TellUnopened(directory, strerror(error));
  }
  g_has_ticks = control->clock == Clock::kTicks;
  g_control = control;
}

}  // namespace rdmaemu::layer::trace

using namespace rdmaemu::layer::trace;

Thread* rdmaemu_layer_begin_record(uint64_t* time) {
  Thread& thread = t_thread.is_writing ? t_handler : t_thread;
  if (thread.is_writing) {
    Lose(Loss::kHandler);
    return nullptr;
  }
  if (HasRoom(thread)) {
    __atomic_store_n(&thread.is_writing, true, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    *time = Now();
    // False if the handler of a signal has used the room meanwhile.
    if (HasRoom(thread)) return &thread;
    __atomic_store_n(&thread.is_writing, false, __ATOMIC_RELAXED);
  }
  return MakeRoom(thread, *time) ? &thread : nullptr;
}

bool rdmaemu_layer_is_tracing() { return g_control != nullptr; }
bool rdmaemu_layer_wants_hashes() {
  return g_control != nullptr && g_control->hashes_payloads != 0;
}

void rdmaemu_layer_mark_injected(const char* rule, rdmaemu::layer::Injected what, uint32_t index) {
  if (!rdmaemu_layer_is_tracing()) return;
  const int error = errno;
  Record record(RecordKind::kInjected, 0);
  if (record) {
    record.Put(static_cast<uint32_t>(what));
    record.Put(index);
    PutText(record, rule, strnlen(rule, kMaxTextBytes));
  }
  errno = error;
}

uint64_t rdmaemu_layer_time() {
#if defined(__x86_64__)
  if (g_has_ticks) return __rdtsc();
#elif defined(__aarch64__)
  if (g_has_ticks) {
    uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
