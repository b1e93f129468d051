#include "emulator/embedded/threads.h"

#include <sys/single_threaded.h>
#include <sys/stat.h>

#include <algorithm>

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

}  // namespace rdmaemu::embedded
