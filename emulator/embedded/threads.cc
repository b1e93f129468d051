#include "emulator/embedded/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "emulator/runtime/unique_fd.h"

// Defined in a program built with -fsanitize=thread.
extern "C" void __tsan_init() __attribute__((weak));

namespace rdmaemu::embedded {

int CountThreads() {
  if (__libc_single_threaded != 0) return 1;
  // The directory's link count: `.`, its name in the parent, and one link for each thread.
  constexpr int kOwnLinks = 2;
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0) return kManyThreads;
  // ThreadSanitizer's own thread starts with the program's second thread, and never ends.
  const int of_sanitizer = __tsan_init != nullptr ? 1 : 0;
  return std::max(1, static_cast<int>(tasks.st_nlink) - kOwnLinks - of_sanitizer);
}

namespace {

// A file of proc(5) about a thread of this process. Empty if the thread has ended.
struct ThreadFile {
  ThreadFile(const char* thread, const char* name) {
    const std::string path = std::string("/proc/self/task/") + thread + "/" + name;
    const runtime::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t bytes = file ? pread(file.get(), text, sizeof text - 1, 0) : 0;
    text[std::max<ssize_t>(bytes, 0)] = '\0';
  }
  char text[256];
};

// Returns the state in stat. It follows the name, which may contain any characters.
char StateOf(const char* thread) {
  const ThreadFile stat(thread, "stat");
  if (stat.text[0] == '\0') return 'X';
  const char* const name_end = strrchr(stat.text, ')');
  return name_end == nullptr || name_end[1] == '\0' ? 'R' : name_end[2];
}

// Calls `visit` with each other thread's id, also as text, until it returns false. Returns false
// without /proc, or if `visit` did.
template <class Visit>
bool ForEachOther(const Visit& visit) {
  DIR* const all = opendir("/proc/self/task");
  if (all == nullptr) return false;
  const pid_t own = gettid();
  bool goes_on = true;
  while (const dirent* const each = readdir(all)) {
    const pid_t thread = atoi(each->d_name);
    if (thread <= 0 || thread == own) continue;
    goes_on = visit(thread, each->d_name);
    if (!goes_on) break;
  }
  closedir(all);
  return goes_on;
}

}  // namespace

std::vector<pid_t> ChildProcesses() {
  std::vector<pid_t> children;
  const auto take = [&](const char* thread) {
    std::ifstream list(std::string("/proc/self/task/") + thread + "/children");
    for (pid_t child; list >> child;) children.push_back(child);
    return true;
  };
  take(std::to_string(gettid()).c_str());
  ForEachOther([&](pid_t, const char* thread) { return take(thread); });
  return children;
}

bool OthersSleep(const std::function<bool(pid_t)>& may_run) {
  return ForEachOther([&](pid_t thread, const char* text) {
    if (!may_run(thread)) return true;
    const char state = StateOf(text);
    return state == 'S' || state == 'Z' || state == 'X';
  });
}

bool DoesOtherWaitFor(const void* object, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(object);
  return !ForEachOther([&](pid_t, const char* thread) {
    long number = 0;
    unsigned long word = 0;
    const ThreadFile call(thread, "syscall");  // "202 0x7ffc... ...", or "running"
    if (sscanf(call.text, "%ld %lx", &number, &word) != 2 || number != SYS_futex) return true;
    return word < begin || word >= begin + bytes;
  });
}

uint64_t OthersRan_ns(const std::function<bool(pid_t)>& counts) {
  uint64_t ran_ns = 0;
  ForEachOther([&](pid_t thread, const char* text) {
    if (counts(thread)) ran_ns += strtoull(ThreadFile(text, "schedstat").text, nullptr, 10);
    return true;
  });
  return ran_ns;
}

}  // namespace rdmaemu::embedded
