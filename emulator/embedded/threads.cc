#include "emulator/embedded/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/runtime/unique_fd.h"

// Of a program that was built with -fsanitize=thread.
extern "C" void __tsan_init() __attribute__((weak));

namespace rdmaemu::embedded {

int CountThreads() {
  if (__libc_single_threaded != 0) return 1;
  // A directory's links: `.`, its name in the parent, and one for each directory in it: a thread.
  constexpr int kOwnLinks = 2;
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0) return kManyThreads;
  // ThreadSanitizer's own thread begins with the program's second one, and stays.
  const int of_sanitizer = __tsan_init != nullptr ? 1 : 0;
  return std::max(1, static_cast<int>(tasks.st_nlink) - kOwnLinks - of_sanitizer);
}

namespace {

// proc(5), the state in stat: it stands behind the name, which may have any letters.
char StateOf(const char* thread) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
  const runtime::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 'X';
  const ssize_t bytes = pread(file.get(), text, sizeof text - 1, 0);
  if (bytes <= 0) return 'X';
  text[bytes] = '\0';
  const char* const name_end = strrchr(text, ')');
  return name_end == nullptr || name_end[1] == '\0' ? 'R' : name_end[2];
}

}  // namespace

bool OthersSleep(const std::function<bool(pid_t)>& may_run) {
  DIR* const all = opendir("/proc/self/task");
  if (all == nullptr) return false;
  const pid_t own = gettid();
  bool sleep = true;
  while (const dirent* const each = readdir(all)) {
    const pid_t thread = atoi(each->d_name);
    if (thread <= 0 || thread == own || !may_run(thread)) continue;
    const char state = StateOf(each->d_name);
    sleep = state == 'S' || state == 'Z' || state == 'X';
    if (!sleep) break;
  }
  closedir(all);
  return sleep;
}

}  // namespace rdmaemu::embedded
