#include "shim/client/call_sites.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/abi/calls.h"
#include "shim/client/system.h"

namespace rdmaemu::client {
namespace {

constexpr int kMaxFrames = 64;  // of a stack, with those of the libraries
constexpr size_t kMaxLineBytes = 8192;

// Numbers of calls: those of the verbs, and those of connection management behind them.
constexpr uint32_t kVerbsOps = 0x100, kCmOps = 0x40;
static_assert(static_cast<uint32_t>(CallOp::kCmCommand) == kVerbsOps);

struct Stack {
  const void* frames[kMaxFrames];
  int count;
};
struct CallSite {
  uint64_t hash;
  pid_t written_by;  // the process that has written the S line
  int line_bytes;
  char* line;
};

pthread_mutex_t g_sites_mutex = PTHREAD_MUTEX_INITIALIZER;  // of the sites
CallSite* g_sites;                                          // kMaxCallSites
uint32_t g_site_count;

// Guarded by the lock that serialises calls.
uint64_t g_calls;  // recorded ones
uint32_t g_process;
uint64_t g_count_of_op[kVerbsOps + kCmOps];

// A copy, because some programs overwrite their environment. Empty: nothing is recorded.
char g_directory[PATH_MAX - 32];

__attribute__((constructor)) void ReadDirectory() {
  const char* const given = secure_getenv("RDMAEMU_CALL_SITES");
  if (given != nullptr && strlen(given) < sizeof g_directory) strcpy(g_directory, given);
}

const char* BaseName(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

bool StartsWith(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Returns whether a file has code of the program: not of rdmaemu's libraries, of the layer, or of
// the C library, which starts programs and threads.
bool IsProgramFile(const char* path) {
  const char* const name = BaseName(path);
  for (const char* const other :
       {"libibverbs.so", "librdmacm.so", "librdmaemu", "libc.so", "libpthread.so", "ld-linux"}) {
    if (StartsWith(name, other)) return false;
  }
  return true;
}

// The path of the running program: the dynamic linker knows it only as the program was called.
const char* ProgramPath(char (&path)[PATH_MAX]) {
  const long length = syscall(SYS_readlink, "/proc/self/exe", path, sizeof path - 1);
  path[length < 0 ? 0 : length] = '\0';
  return path;
}

// Writes the frame at the end of the line. Returns the new length. A frame that is not the
// program's, or that has no room, is left out.
size_t AppendFrame(const void* address, char* line, size_t length) {
  Dl_info info;
  link_map* map = nullptr;
  // The call instruction is before the return address.
  const char* const at = static_cast<const char*>(address) - 1;
  if (dladdr1(at, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      info.dli_fname == nullptr || !IsProgramFile(info.dli_fname)) {
    return length;
  }
  char own[PATH_MAX];
  const bool is_main = map->l_name == nullptr || map->l_name[0] == '\0';
  const char* const file = is_main ? ProgramPath(own) : info.dli_fname;
  const size_t room = kMaxLineBytes - length;
  const int written = snprintf(
      line + length, room, "\t%s+0x%lx%s%s", file,
      static_cast<unsigned long>(reinterpret_cast<uintptr_t>(at) - map->l_addr),
      info.dli_sname == nullptr ? "" : " ", info.dli_sname == nullptr ? "" : info.dli_sname);
  return written < 0 || static_cast<size_t>(written) >= room
             ? length
             : length + static_cast<size_t>(written);
}

uint64_t HashOf(const Stack& stack) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by words
  for (int i = 0; i < stack.count; i++) {
    hash = (hash ^ reinterpret_cast<uintptr_t>(stack.frames[i])) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

// Returns the site of this hash, 0 if there is none. The caller holds g_sites_mutex.
uint32_t Find(uint64_t hash) {
  for (uint32_t i = g_site_count; i > 0; i--) {
    if (g_sites[i - 1].hash == hash) return i;
  }
  return 0;
}

// Returns 0 when there is no room.
uint32_t Add(uint64_t hash, const char* line, size_t length) {
  if (g_sites == nullptr) {
    g_sites = static_cast<CallSite*>(calloc(kMaxCallSites, sizeof(CallSite)));
  }
  char* const copy = static_cast<char*>(malloc(length));
  if (g_sites == nullptr || copy == nullptr || g_site_count == kMaxCallSites) {
    free(copy);
    return 0;
  }
  memcpy(copy, line, length);
  g_sites[g_site_count] = {hash, 0, static_cast<int>(length), copy};
  return ++g_site_count;
}

// Appends to the file of this process. Opens the file each time, because programs close
// descriptors that they did not open.
void Append(const char* text, size_t length) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%d", g_directory, static_cast<int>(getpid())) >=
      static_cast<int>(sizeof path)) {
    return;
  }
  const int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (fd < 0) return;
  (void)syscall(SYS_write, fd, text, length);
  SysClose(fd);
}

}  // namespace

uint32_t FindCallSite() {
  if (g_directory[0] == '\0') [[likely]]
    return 0;
  Stack stack;
  stack.count = backtrace(const_cast<void**>(stack.frames), kMaxFrames);
  const uint64_t hash = HashOf(stack);
  pthread_mutex_lock(&g_sites_mutex);
  uint32_t site = Find(hash);
  pthread_mutex_unlock(&g_sites_mutex);
  if (site != 0) return site;
  char line[kMaxLineBytes];
  size_t length = 0;
  for (int i = 0, frames = 0; i < stack.count && frames < kMaxSiteFrames; i++) {
    const size_t longer = AppendFrame(stack.frames[i], line, length);
    frames += longer > length ? 1 : 0;
    length = longer;
  }
  pthread_mutex_lock(&g_sites_mutex);
  site = Find(hash);
  if (site == 0) site = Add(hash, line, length);
  pthread_mutex_unlock(&g_sites_mutex);
  // Without room, the call has no line of its own, but it counts.
  return site == 0 ? kMaxCallSites + 1 : site;
}

void RecordCall(uint32_t site, uint32_t process, uint32_t op) {
  if (site == 0 || op >= kVerbsOps + kCmOps) return;
  if (process != g_process) {
    g_process = process;
    g_calls = 0;
    memset(g_count_of_op, 0, sizeof g_count_of_op);
  }
  const uint64_t nth = ++g_count_of_op[op];
  if (g_calls > kMaxRecordedCalls) return;
  if (g_calls++ == kMaxRecordedCalls || site > kMaxCallSites) {
    g_calls = kMaxRecordedCalls + 1;
    return Append("L\n", 2);
  }
  char line[kMaxLineBytes + 128];
  int length = 0;
  pthread_mutex_lock(&g_sites_mutex);
  CallSite& written = g_sites[site - 1];
  if (written.written_by != getpid()) {
    written.written_by = getpid();
    length = snprintf(line, sizeof line, "S\t%u%.*s\n", site, written.line_bytes, written.line);
  }
  pthread_mutex_unlock(&g_sites_mutex);
  length +=
      snprintf(line + length, sizeof line - static_cast<size_t>(length), "C\t%u\t%u\t%llu\t%u\n",
               process, op, static_cast<unsigned long long>(nth), site);
  Append(line, static_cast<size_t>(length));
}

void ResetCallSitesAfterFork() { pthread_mutex_init(&g_sites_mutex, nullptr); }

}  // namespace rdmaemu::client
